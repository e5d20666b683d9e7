"""What of an ONNX op is not taken, or differs on purpose, in words: for the table in docs."""

from __future__ import annotations

_FIXED = "{} must be fixed in the model"
_SEQUENCE = "{} at a constant place"

# Ops whose result carries no gradient: integers, booleans and piecewise constants.
NOT_DIFFERENTIABLE = frozenset(
    {
        *("And", "ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("Ceil", "Floor", "IsNaN", "Not", "OneHot", "Or", "Sign", "Xor"),
    }
)

LIMITS: dict[str, str] = {
    "AveragePool": "1 to 3 spatial axes",
    "BatchNormalization": "always with the statistics of the batch, also where the model was "
    "exported for inference; ONNX's biased variance in the running statistics",
    "Clip": "zero gradient at exactly a bound, as PyTorch's",
    "Conv": "1 to 3 spatial axes",
    "ConvTranspose": "1 to 3 spatial axes",
    "CumSum": _FIXED.format("the axis"),
    "Dropout": "always training; " + _FIXED.format("the ratio, below 1,"),
    "Einsum": "operands are multiplied from left to right; float types",
    "Expand": _FIXED.format("the shape"),
    "GRU": "unrolled over a fixed number of steps",
    "Gather": "indices out of range are clipped",
    "GatherElements": "indices out of range are clipped",
    "GatherND": "indices out of range are clipped",
    "InstanceNormalization": "scale and bias of Constant nodes are not trained",
    "LSTM": "unrolled over a fixed number of steps",
    "LpNormalization": "p of 1 or 2",
    "Max": "a tie shares the gradient equally",
    "MaxPool": "1 to 3 spatial axes; a tie goes to the first",
    "Min": "a tie shares the gradient equally",
    "OneHot": _FIXED.format("depth and values"),
    "Pad": _FIXED.format("widths and value"),
    "Pow": "zero gradient of the exponent where the base is not positive",
    "RNN": "unrolled over a fixed number of steps",
    "ReduceMax": "ties share the gradient equally",
    "ReduceMin": "ties share the gradient equally",
    "Reshape": _FIXED.format("the shape") + " or follow from the shapes of the inputs",
    "Resize": _FIXED.format("scales or sizes, and the region,"),
    "ScatterElements": "updates of one place all get its gradient; max and min: ties share it",
    "ScatterND": "updates of one place all get its gradient; max and min: ties share it",
    "SequenceAt": "what a Loop of open length has appended: by the number of an iteration",
    "SequenceErase": _SEQUENCE.format("erased"),
    "SequenceInsert": _SEQUENCE.format("inserted") + "; a Loop appends one tensor an iteration",
    "ConcatFromSequence": "what a Loop of open length has appended: along a new axis only",
    "SplitToSequence": "open axes: into rows only",
    "Slice": _FIXED.format("starts, ends, axes and steps"),
    "SoftmaxCrossEntropyLoss": "class weights are not trained",
    "NegativeLogLikelihoodLoss": "class weights are not trained",
    "Split": _FIXED.format("the sizes"),
    "Tile": _FIXED.format("the repeats"),
    "TopK": _FIXED.format("k") + "; always sorted; NaN counts as the largest",
    "Trilu": _FIXED.format("k"),
    "Upsample": _FIXED.format("the scales"),
}
LIMITS |= {name: "no gradient" for name in NOT_DIFFERENTIABLE}
