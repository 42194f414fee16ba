"""The input used when none is given: a short original text, and a drawn image."""

import numpy as np

TEXT = """\
The ferry left the old harbour at dawn, and nobody on the upper deck spoke until the lighthouse had
shrunk to a grey dot. Mara counted seventeen gulls, then lost count, because the captain rang the
bell twice and the whole crew ran to the port side. Later she wrote that the sea had opened like a
book that somebody shuts in a hurry. The engineer said it was a whale; the cook, who had seen both,
said it was a container, and that containers were worse, since no whale had ever carried four
thousand pairs of left shoes. They argued through breakfast.

At noon the wind turned. The chart on the wall of the mess showed twelve islands, of which the
children could name nine: two had been renamed since the war, and one had never existed at all.
"Then why draw it?" asked the youngest. "Because ships kept stopping there," said the mate, and went
back to splicing his rope. Numbers were chalked on a board beside him: 42 litres of water, 3.5
knots, a bearing of 271 degrees, and the price of coffee.

The captain's report, filed on the following Tuesday, was short. It listed the weather, the cargo,
the delay of ninety minutes and its cause, which it called an obstruction. It did not mention gulls.
It did mention, in the margin and in pencil, that one passenger had asked whether the island was
still for sale, and that he had told her the truth: nobody had ever managed to land there twice, so
nobody could say what it was worth.
"""


def image(size: int = 224) -> np.ndarray:
    """(size, size, 3) uint8: smooth colours, a disc, stripes and a little fixed noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    colours = np.stack([x, y, 1 - (x + y) / 2], -1)
    colours[(x - 0.35) ** 2 + (y - 0.4) ** 2 < 0.05] = (0.9, 0.2, 0.1)
    colours[(x > 0.6) & (y > 0.5) & ((24 * x).astype(int) % 2 == 0)] = (0.1, 0.1, 0.3)
    noise = np.random.default_rng(0).normal(scale=0.04, size=colours.shape)
    return np.round(255 * np.clip(colours + noise, 0, 1)).astype(np.uint8)
