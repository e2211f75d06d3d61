from themis.engines.metrics.jsonl import parse_sample
from themis.engines.metrics.points import SampleBatch
from themis.node.metric_progress import MetricProgress
from themis.protocol.node_messages import NOT_FINITE, Point, finite


def test_metric_that_is_not_finite_becomes_the_largest_number() -> None:
    lines = [b'{"it": 1, "loss": NaN, "lr": Infinity}', b'{"it": 2, "loss": null}', b'{"it": 3}']
    samples = [parse_sample(line) for line in lines]
    stretch = SampleBatch(tuple(sample for sample in samples if sample is not None), 90, more=False)
    points = MetricProgress().take(stretch)
    assert points == (Point(1.0, None, (("loss", NOT_FINITE),)), Point(2.0), Point(3.0))
    assert finite(NOT_FINITE) is None
    assert finite(-NOT_FINITE) == -NOT_FINITE
