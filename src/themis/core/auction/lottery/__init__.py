"""Auctions over lotteries of allocations: the payment rule `lottery-pf`."""
