"""A pass for Olive (package olive-ai): ONNX models in the order, or the pieces, that need the least activation memory.

Olive finds it by a package configuration, which `package_config` returns, and then by its name in a workflow:

    from olive.workflows import run
    from memsched.integrations.olive_pass import package_config

    run({"input_model": {"type": "OnnxModel", "model_path": "model.onnx"},
         "passes": {"memory": {"type": "MemschedLeastMemory", "level": 2}},
         "output_dir": "out"}, package_config=package_config())
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memsched.commands.declared import shown
from memsched.commands.options import Options
from memsched.integrations.missing import missing_tool

try:
    from olive.model import ONNXModelHandler
    from olive.model.utils import resolve_onnx_path
    from olive.package_config import OlivePackageConfig
    from olive.passes import Pass
    from olive.passes.olive_pass import PassConfigParam
except ModuleNotFoundError as error:
    raise missing_tool(error, "olive-ai", "olive-ai requests") from None

__all__ = ["MemschedLeastMemory", "package_config"]

_OPTIONS: dict[str, tuple[type, Any]] = {
    "target": (str, None),
    "budget": (str, None),
    "level": (int, 1),
    "allow": (list, None),
    "max_extra_macs": (float, None),
    "max_slowdown": (float, None),
    "order_guarantee": (str, "default"),
    "effort": (float, None),
    "dims": (dict, None),
    "input_shapes": (dict, None),
    "verify": (bool, True),
    "seed": (int, 0),
}
"""Options of `memsched.optimize` with their type and what holds by default; None: what `memsched.optimize` has.

Olive can give sessions no options, so that the order is one that they take without any."""


class MemschedLeastMemory(Pass):  # type: ignore[misc]  # types are checked without olive-ai
    """Writes what `memsched.optimize` makes of a model, and its report beside it, ending in .memsched.json."""

    @classmethod
    def _default_config(cls, accelerator_spec: Any) -> dict[str, Any]:  # noqa: ARG003 - Olive passes it by name
        known = Options.__dataclass_fields__
        return {
            name: PassConfigParam(type_=kind, default_value=default, description=shown(known[name]).help)
            for name, (kind, default) in _OPTIONS.items()
        }

    def _run_for_config(self, model: Any, config: Any, output_model_path: str) -> Any:
        from memsched.commands.optimize.optimize import optimize

        wanted = {name: getattr(config, name) for name in _OPTIONS}
        path = Path(resolve_onnx_path(output_model_path, Path(model.model_path).name))
        result = optimize(model.model_path, **{name: value for name, value in wanted.items() if value is not None})
        result.save(path)
        result.report.save(path.with_suffix(".memsched.json"))
        return ONNXModelHandler(
            model_path=str(path.parent), onnx_file_name=path.name, inference_settings=model.inference_settings
        )


def package_config() -> dict[str, Any]:
    """Return Olive's package configuration with this pass beside its own."""
    found: dict[str, Any] = OlivePackageConfig.load_default_config().model_dump(mode="json")
    everything = {f"supported_{what}": ["*"] for what in ("providers", "accelerators", "precisions")}
    module = f"{MemschedLeastMemory.__module__}.{MemschedLeastMemory.__name__}"
    found["passes"][MemschedLeastMemory.__name__.lower()] = {"module_path": module, **everything}
    return found
