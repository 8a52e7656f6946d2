from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.report.header import arena_header
from tests.formats.tflite_builder import MODELS, O, Sub, T, build
from tests.report.plain import typed, with_section
from tests.small_models import branches

HOSTILE = '*/ #error "x"\n??/ \\ /* \u202e\x00 %s'
COMPILERS = {
    "c99": ("gcc", "c", ["-std=c99"]),
    "c11": ("gcc", "c", ["-std=c11"]),
    "c++11": ("g++", "c++", ["-std=c++11"]),
    "c++20": ("g++", "c++", ["-std=c++20"]),
}


def report_of(model: bytes | Path, target: str = "tflm") -> dict[str, Any]:
    return dict(memsched.optimize(model, target=target, verify=False).report.data)


@pytest.fixture(scope="module")
def person_detect() -> dict[str, Any]:
    return report_of(MODELS / "person_detect.tflite")


def hostile() -> dict[str, Any]:
    tensors = [T(HOSTILE), *(T(HOSTILE) for _ in range(3))]
    ops = [O(f"CUSTOM:{HOSTILE}", [0], [1]), O("GELU", [1], [2]), O("NEG", [2], [3])]
    report = report_of(build(Sub(tensors, ops, [0], [3])), "litert")
    report["model"] = {**report["model"], "path": f"1{HOSTILE}.tflite"}
    report["target"] = {**report["target"], "name": HOSTILE}
    return report


def parsed(text: str) -> subprocess.CompletedProcess[str]:
    """Without a compiler: conditions end, and nothing is left of a line but directives, assertions and the table."""
    bare = re.sub(r"/\*.*?\*/|\\\n", "", text, flags=re.DOTALL).splitlines()
    opened = sum(line.startswith("#if") for line in bare) - sum(line.startswith("#endif") for line in bare)
    words = ("#", "static const struct {", "size_t ", "}", "{((size_t)")
    odd = [line for line in map(str.strip, bare) if line and not line.startswith(words) and "_ASSERT(" not in line]
    return subprocess.CompletedProcess((), opened or len(odd), "", "\n".join(odd))


def compiled(folder: Path, text: str, name: str, standard: str) -> subprocess.CompletedProcess[str]:
    """Compile a unit that uses everything in the header, which it includes twice."""
    compiler, language, flags = COMPILERS[standard]
    if shutil.which(compiler) is None:
        return parsed(text)
    (folder / "model_arena.h").write_text(text, encoding="utf-8")
    unit = f"""#define {name}_DEFINE_TENSORS
        #include "model_arena.h"
        #include "model_arena.h"
        {name}_ALIGNED static uint8_t arena[{name}_ARENA_BYTES];
        {name}_CHECK_ARENA(arena);
        const char *about(size_t *bytes) {{
            *bytes = sizeof(arena) + {name}_ACTIVATION_BYTES;
        #ifdef {name}_TENSORS
            *bytes += {name.lower()}_tensors[{name}_TENSORS - 1].offset + {name.lower()}_tensors[0].bytes;
        #endif
            return arena[0] ? {name}_MODEL_SHA256 : {name}_MEMSCHED_VERSION;
        }}
        """
    command = [compiler, "-x", language, *flags, "-Wall", "-Wextra", "-pedantic", "-Werror", "-c", "-", "-o", "unit.o"]
    return subprocess.run(command, input=unit, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("standard", COMPILERS)
def test_compilers_accept_it(tmp_path: Path, person_detect: dict[str, Any], standard: str) -> None:
    done = compiled(tmp_path, arena_header(typed(person_detect), "out/model_arena.h"), "PERSON_DETECT", standard)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("standard", COMPILERS)
def test_hostile_names_stay_in_comments(tmp_path: Path, standard: str) -> None:
    text = arena_header(typed(hostile()), f"{HOSTILE}.h")
    assert text.isascii()
    assert "#error" not in [line.strip().partition(" ")[0] for line in text.splitlines()]
    assert text.count("/*") == text.count("*/")
    assert parsed(text).returncode == 0
    found = re.search(r"#define (\w+)_MODEL_SHA256", text)
    assert found is not None
    done = compiled(tmp_path, text, found[1], standard)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_arena_that_is_too_small_does_not_compile(tmp_path: Path, person_detect: dict[str, Any]) -> None:
    text = arena_header(typed(person_detect), "model_arena.h")
    small = text.replace("#define PERSON_DETECT_CHECK_ARENA(array)", "#define PERSON_DETECT_CHECK_ARENA(unused)")
    small = small.replace("sizeof(array) >=", "sizeof(char[55296]) >=")
    assert small != text
    for standard in (name for name, compiler in COMPILERS.items() if shutil.which(compiler[0])):
        assert compiled(tmp_path, small, "PERSON_DETECT", standard).returncode != 0


def test_it_states_the_reports_figures(person_detect: dict[str, Any]) -> None:
    text = arena_header(typed(person_detect), "model_arena.h")
    assert "#define PERSON_DETECT_ACTIVATION_BYTES ((size_t)55296u)" in text
    assert "#define PERSON_DETECT_PERSISTENT_BYTES ((size_t)29728u)" in text
    assert "#define PERSON_DETECT_PERSISTENT_BYTES ((size_t)27004u)" in text
    # In two arenas: the allocators of both in place of one's, and all of the room for planning.
    assert "(((size_t)29744u) + PERSON_DETECT_ARENA_ALIGNMENT - 1)" in text
    assert "(((size_t)27020u) + PERSON_DETECT_ARENA_ALIGNMENT - 1)" in text
    assert "#define PERSON_DETECT_NON_PERSISTENT_ARENA_BYTES" in text
    assert f'"{person_detect["output"]["sha256"]}"' in text
    assert "#define PERSON_DETECT_RESOLVER_SIZE 5" in text
    assert " * AddDepthwiseConv2D();" in text
    assert text.count("MODEL_ARENA_H_") == 3
    assert text == arena_header(typed(person_detect), "elsewhere/model_arena.h")


def test_the_simulated_head_counts_where_there_is_one(person_detect: dict[str, Any]) -> None:
    plan = [{"subgraph": 0, "index": 3, "tensor": "a", "offset_bytes": 1024}]
    heads = {"head_bytes": 60000, "file_head_bytes": 60000, "order_head_bytes": None, "plan_head_bytes": None}

    def tflm_of(plan: list[dict[str, Any]]) -> dict[str, Any]:
        return with_section(person_detect, tflm={**heads, "dropped": [], "plan": plan})

    text = arena_header(typed(tflm_of(plan)), "model_arena.h")
    assert "#define PERSON_DETECT_ACTIVATION_BYTES ((size_t)60000u)" in text
    assert "{((size_t)1024u), ((size_t)0u)}, /* 0: a */" in text
    without = arena_header(typed(tflm_of([])), "model_arena.h")
    assert "--tflm-plan" in without
    assert "_DEFINE_TENSORS" not in without


def test_other_targets_have_activations_and_places_alone(tmp_path: Path) -> None:
    report = report_of(MODELS / "hello_world_int8.tflite", "ideal")
    text = arena_header(typed(report), "model_arena.h")
    assert "PERSISTENT" not in text
    assert "#define HELLO_WORLD_INT8_ACTIVATION_BYTES ((size_t)32u)" in text
    assert text.count("{((size_t)") == len(report["written"]["buffers"])
    done = compiled(tmp_path, text, "HELLO_WORLD_INT8", "c99")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("standard", COMPILERS)
def test_offsets_in_several_memories_name_the_memory(tmp_path: Path, standard: str) -> None:
    chip = tmp_path / "chip.toml"
    text = 'extends = "ideal"\n[[pools]]\nname = "*/fast"\nsize = 2048\n[[pools]]\nname = "slow"\ncost = 9\n'
    chip.write_text(text, encoding="utf-8")
    data = dict(memsched.optimize(branches(), target=str(chip), verify=False).report.data)
    used = [pool["used_bytes"] for pool in data["sections"]["pools"]["pools"]]
    text = arena_header(typed({**data, "model": {**data["model"], "path": "net.onnx"}}), "model_arena.h")
    assert "#define NET_POOLS 2" in text
    assert f"#define NET_POOL_0_BYTES ((size_t){used[0]}u) /* _/fast */" in text
    assert f"#define NET_POOL_1_BYTES ((size_t){used[1]}u) /* slow */" in text
    rows = re.findall(r"\{\(\(size_t\)(\d)u\), \(\(size_t\)(\d+)u\), .* in (.*) \*/", text)
    names = {"0": "*/fast", "1": "slow"}
    assert [(names[pool], int(offset)) for pool, offset, _ in rows] == [
        (row["pool"], row["offset_bytes"]) for row in data["written"]["buffers"]
    ]
    assert {shown for _, _, shown in rows} == {"_/fast", "slow"}
    done = compiled(tmp_path, text, "NET", standard)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["", ".h", "---", "_", "9", "\u00e9.h", "int.h"])
def test_every_file_name_gives_a_sound_guard(tmp_path: Path, person_detect: dict[str, Any], name: str) -> None:
    text = arena_header(typed(person_detect), name)
    guard = text.split("#ifndef ")[1].split("\n")[0]
    assert guard.replace("_", "a").isalnum()
    assert not guard.startswith("_")
    assert "__" not in guard
    done = compiled(tmp_path, text, "PERSON_DETECT", "c99")
    assert (done.returncode, done.stderr) == (0, "")
