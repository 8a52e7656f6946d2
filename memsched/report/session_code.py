"""Code that opens a session as it was measured, in Python, C++ and C#."""

from __future__ import annotations

from memsched.report.values.sessions import SessionRow
from memsched.runtimes.session_code import LEVELS

__all__ = ["cpp_lines", "csharp_lines", "options_text", "python_lines"]

_SHRINKAGE = '"memory.enable_memory_arena_shrinkage", "cpu:0"'
_PREPACKING = '"session.disable_prepacking", "1"'
_QUANT_QDQ = '"session.disable_quant_qdq", "1"'


def python_lines(row: SessionRow) -> tuple[str, ...]:
    """Return lines of Python that open ``path`` and run it on ``feeds``."""
    lines = ["import onnxruntime", "", "options = onnxruntime.SessionOptions()"]
    if row.level in LEVELS:
        lines.append(f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{LEVELS[row.level]}")
    if row.execution_order == "file":
        lines.append("options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED")
    lines += [] if row.mem_reuse else ["options.enable_mem_reuse = False"]
    lines += [] if row.mem_pattern else ["options.enable_mem_pattern = False"]
    lines += [] if row.arena else ["options.enable_cpu_mem_arena = False"]
    lines += [] if row.prepacking else [f"options.add_session_config_entry({_PREPACKING})"]
    lines += [] if row.quant_qdq else [f"options.add_session_config_entry({_QUANT_QDQ})"]
    lines += [f"options.intra_op_num_threads = {row.threads}"] if row.threads else []
    disabled = f", disabled_optimizers={list(row.disabled_optimizers)}" if row.disabled_optimizers else ""
    lines.append(f'session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]{disabled})')
    if not row.shrinkage:
        return (*lines, "outputs = session.run(None, feeds)")
    lines += ["run_options = onnxruntime.RunOptions()", f"run_options.add_run_config_entry({_SHRINKAGE})"]
    return (*lines, "outputs = session.run(None, feeds, run_options)")


def cpp_lines(row: SessionRow) -> tuple[str, ...] | None:
    """Return lines of C++ that open ``path`` in ``env``; None where its interface lacks an option."""
    if _python_alone(row):
        return None
    lines = ["Ort::SessionOptions options;"]
    if row.level in LEVELS:
        lines.append(f"options.SetGraphOptimizationLevel(GraphOptimizationLevel::{LEVELS[row.level]});")
    lines += [] if row.mem_pattern else ["options.DisableMemPattern();"]
    lines += [] if row.arena else ["options.DisableCpuMemArena();"]
    lines += [] if row.prepacking else [f"options.AddConfigEntry({_PREPACKING});"]
    lines += [] if row.quant_qdq else [f"options.AddConfigEntry({_QUANT_QDQ});"]
    lines += [f"options.SetIntraOpNumThreads({row.threads});"] if row.threads else []
    lines.append("Ort::Session session(env, path, options);")
    if row.shrinkage:
        lines += ["Ort::RunOptions run_options;  // for each session.Run"]
        lines += [f"run_options.AddConfigEntry({_SHRINKAGE});"]
    return tuple(lines)


def csharp_lines(row: SessionRow) -> tuple[str, ...] | None:
    """Return lines of C# that open ``path``; None where its interface lacks an option."""
    if _python_alone(row):
        return None
    lines = ["using var options = new SessionOptions();"]
    if row.level in LEVELS:
        lines.append(f"options.GraphOptimizationLevel = GraphOptimizationLevel.{LEVELS[row.level]};")
    lines += [] if row.mem_pattern else ["options.EnableMemoryPattern = false;"]
    lines += [] if row.arena else ["options.EnableCpuMemArena = false;"]
    lines += [] if row.prepacking else [f"options.AddSessionConfigEntry({_PREPACKING});"]
    lines += [] if row.quant_qdq else [f"options.AddSessionConfigEntry({_QUANT_QDQ});"]
    lines += [f"options.IntraOpNumThreads = {row.threads};"] if row.threads else []
    lines.append("using var session = new InferenceSession(path, options);")
    if row.shrinkage:
        lines += ["using var runOptions = new RunOptions();  // for each session.Run"]
        lines += [f"runOptions.AddRunConfigEntry({_SHRINKAGE});"]
    return tuple(lines)


def options_text(row: SessionRow) -> str:
    """Return in words what differs from a session without options."""
    parts: list[str] = [row.level] if row.level in LEVELS else []
    parts += ["file's order"] if row.execution_order == "file" else []
    if not row.mem_reuse and not row.mem_pattern:
        parts.append("no reuse or pattern")
    else:
        parts += [] if row.mem_reuse else ["no reuse"]
        parts += [] if row.mem_pattern else ["no pattern"]
    parts += [f"no {' or '.join(row.disabled_optimizers)}"] if row.disabled_optimizers else []
    parts += [] if row.arena else ["no arena"]
    parts += ["shrinkage"] if row.shrinkage else []
    parts += [] if row.prepacking else ["no prepacking"]
    parts += [] if row.quant_qdq else ["no quant_qdq"]
    parts += [f"threads {row.threads}"] if row.threads else []
    return ", ".join(parts) or "none"


def _python_alone(row: SessionRow) -> bool:
    """Whether an option is needed that ONNX Runtime's C interface, and all that stands on it, does not have."""
    return not row.mem_reuse or row.execution_order == "file" or bool(row.disabled_optimizers)
