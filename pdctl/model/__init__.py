"""Frozen values every other room shares. Standard library only; imports nothing else of pdctl."""
