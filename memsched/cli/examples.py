"""What every command's help ends with: examples to copy, and the exit codes."""

from __future__ import annotations

__all__ = ["ENTRY", "EXAMPLES", "closing"]

ENTRY = (
    ("In which runtime does what help?", "memsched model.onnx"),
    ("Will this model fit? What is at fault?", "memsched analyze model.onnx"),
    ("Less memory, verified, with a report", "memsched optimize model.onnx"),
    ("Completion of commands and options", 'eval "$(memsched --completion bash)"'),
)
"""Examples in the help of ``memsched`` itself."""

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "MODEL": (
        ("Each runtime that takes the model", "memsched model.tflite"),
        ("One runtime, sizes that the model leaves open", "memsched model.onnx --target onnxruntime --dim batch=1"),
    ),
    "optimize": (
        ("The best order, and a report beside it", "memsched optimize model.onnx"),
        ("Fit 256 KB on a microcontroller", "memsched optimize model.tflite --target tflm --budget 256KB"),
        ("Layers in pieces, values computed again", "memsched optimize model.onnx --allow all"),
        ("Sizes that the model leaves open", "memsched optimize model.onnx --dim batch=1"),
        ("The report alone, for a program", "memsched optimize model.onnx -o out.onnx --json -q | jq .verdict"),
    ),
    "analyze": (
        ("Peak, bound, tensors at the peak", "memsched analyze model.onnx"),
        ("Does it fit as it stands?", "memsched analyze model.tflite --target tflm --budget 256KB"),
        ("What less memory would cost", "memsched analyze model.onnx --frontier --plot frontier.svg"),
    ),
    "verify": (
        ("Are the outputs equal?", "memsched verify model.onnx model_memsched.onnx"),
        ("Within a tolerance, on ten inputs", "memsched verify a.onnx b.onnx --runs 10 --atol 1e-5"),
    ),
    "report": (
        ("A page to open in a browser", "memsched report model_memsched.json"),
        ("Under a name of your own", "memsched report model_memsched.json -o page.html"),
    ),
    "diff": (
        ("What changed between two reports", "memsched diff old.json new.json"),
        ("Fail where more than 1 % is lost", "memsched diff old.json new.json --fail-on-regression 1"),
        ("Two models, as a table for a comment", "memsched diff old.tflite new.tflite --markdown"),
        ("Of a whole zoo, for a program", "memsched diff old/batch.json new/batch.json --json"),
    ),
    "doctor": (
        ("Where the process's memory goes", "memsched doctor model.onnx"),
        ("Beside the file that was written", "memsched doctor model.onnx model_memsched.onnx"),
        ("With a page that has the picture", "memsched doctor model.onnx --html doctor.html"),
    ),
    "batch": (
        ("All models of a folder", "memsched batch models -o optimized"),
        ("Two at a time, for 256 KB", "memsched batch models --workers 2 --budget 256KB -o optimized"),
        ("The models that a file lists", "memsched batch @models.txt -o optimized"),
        ("On a dask cluster", "memsched batch models --dask tcp://scheduler:8786 -o optimized"),
    ),
    "allocate": (
        ("Addresses within 256 KB", "memsched allocate buffers.csv --capacity 256KB"),
        ("To a file of your own name", "memsched allocate buffers.csv --capacity 1MiB -o out.csv"),
    ),
    "pipeline": (
        ("Two models for two accelerators", "memsched pipeline model.tflite --stages 2"),
        ("Cut here", "memsched pipeline model.tflite --stages 2 --cut-at add_7"),
    ),
    "decoder": (
        ("Texts of 2,048 tokens, in place", "memsched decoder decoder.onnx --tokens 2048"),
        ("How long a text fits", "memsched decoder decoder.onnx --tokens 1024 --budget 2GB"),
    ),
    "relay": (
        ("As many files as help, and C++ that runs them", "memsched relay model.tflite -o firmware"),
        ("Fit 48 KB with the fewest files", "memsched relay model.tflite -o firmware --allow all --budget 48KB"),
    ),
    "distribute": (("One model per device", "memsched distribute model.onnx --cluster cluster.toml -o out"),),
    "targets": (
        ("All that are built in", "memsched targets"),
        ("Start a target of your own", "memsched targets tflm > mychip.toml"),
    ),
    "schema": (("The schema of a report", "memsched schema report > report.schema.json"),),
}
"""By command: (what for, the line to type)."""

_EXIT_CODES = {
    "0": "done",
    "1": "bad model or file",
    "2": "wrong usage",
    "3": "budget not met",
    "4": "verification failed",
    "130": "interrupted",
}
_OTHER_EXIT_CODES = {
    "allocate": {"3": "capacity exceeded"},
    "batch": {"1": "some models failed", "3": "some budget not met"},
    "diff": {"1": "bad report", "3": "regression beyond --fail-on-regression"},
}
_POSSIBLE_EXIT_CODES = {
    "MODEL": ("0", "1", "2", "130"),
    "analyze": ("0", "1", "2", "3", "130"),
    "batch": ("0", "1", "2", "3", "130"),
    "decoder": ("0", "1", "2", "3", "4", "130"),
    "diff": ("0", "1", "2", "3"),
    "doctor": ("0", "1", "2", "130"),
    "report": ("0", "1", "2"),
    "targets": ("0", "1", "2"),
    "schema": ("0", "2"),
    "verify": ("0", "1", "2", "4", "130"),
    "allocate": ("0", "1", "2", "3", "130"),
    "pipeline": ("0", "1", "2", "4", "130"),
    "relay": ("0", "1", "2", "3", "4", "130"),
    "distribute": ("0", "1", "2", "3", "4", "130"),
}


def closing(command: str | None) -> str:
    r"""Return the end of the help of ``command``, or of memsched itself; click keeps lines after "\b" as they are."""
    examples = ENTRY if command is None else EXAMPLES.get(command, ())
    lines = []
    for purpose, line in examples:
        lines += [f"  # {purpose}", f"  $ {line}"]
    parts = ["\b\nExamples:\n" + "\n".join(lines)] if lines else []
    meanings = {**_EXIT_CODES, **_OTHER_EXIT_CODES.get(command or "", {})}
    possible = _POSSIBLE_EXIT_CODES.get(command or "", tuple(_EXIT_CODES))
    parts.append("Exit codes: " + ", ".join(f"{code} {meanings[code]}" for code in possible) + ".")
    return "\n\n".join(parts)
