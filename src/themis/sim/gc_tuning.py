"""What simulating many things does to Python's memory, for processes that do nothing else.

spare_memory_checks()       # once, when the process begins
"""

import gc


def spare_memory_checks() -> None:
    """Let Python look for circles of dead objects more rarely: a seventh of a long run's time else.

    It changes the whole process, so it is for those that are ours: a library must not.
    """
    gc.collect()  # What is dead already would never be found any more.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
