"""The dataflow IR: types, operators with their one meaning, graphs, interpreter, text form and files."""

from .builder import Builder
from .builder_values import Value
from .directions import OneDirection, device_step, one_direction
from .extract import extract
from .files import graph_hash, load, save
from .graph import NOWHERE, Graph, GraphBuilder, Location, Node
from .interpreter import run, run_in_chunks
from .ops import OPS, Op, Operand
from .positions import steps_as_positions
from .rounds import Rounds
from .steps import OneStep, StepRunner, one_step
from .text import dumps, loads
from .types import BIPOLAR, BIT, FLOAT, FloatType, IntType, TensorType
from .verify import verify

__all__ = [
    "BIPOLAR",
    "BIT",
    "FLOAT",
    "NOWHERE",
    "OPS",
    "Builder",
    "FloatType",
    "Graph",
    "GraphBuilder",
    "IntType",
    "Location",
    "Node",
    "OneDirection",
    "OneStep",
    "Op",
    "Operand",
    "Rounds",
    "StepRunner",
    "TensorType",
    "Value",
    "device_step",
    "dumps",
    "extract",
    "graph_hash",
    "load",
    "loads",
    "one_direction",
    "one_step",
    "run",
    "run_in_chunks",
    "save",
    "steps_as_positions",
    "verify",
]
