"""Function secret sharing: keys that share a function among servers. No I/O.

A client that holds α gives each server one key; any server can then evaluate its share of a
function of α at any public point, and shares add up in the ring. Start at `comparison`, which
answers "how many α are ≤ t?" for any number of servers:

    comparison    one entry for all sizes; picks a construction by servers and bits
    dcf, dpf      two servers: comparison and point functions, from one tree of seeds
    interval      counts in [l, r], from comparison keys
    seed_table    m servers, small domains
    square_root   three servers, larger domains
    verified      two servers, which check that a key is one step of weight one
    grid          the same where every point of a small domain is asked, in a third of the work

    shape         how a tree key is laid out, and why it has that size
    storage       keys as rows or level-major segments, for memory maps
    tree          gen and evaluation of tree keys; runs `twin` or the native loops
    hash, prg     the two ways a seed is stretched, and what each assumes
    native        which implementation runs

Randomness is always an argument. Only `verified` and `grid` defend against a client that shares a
function other than a step; each aggregator states what that means for its answers.
"""
