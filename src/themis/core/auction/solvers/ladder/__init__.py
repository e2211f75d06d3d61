"""The exact solver for auctions of any size: prices, labels, packing, then HiGHS."""
