// Package nft brings a table of nftables to a desired state: it compares once with what the kernel has, and from then
// on writes only changes, each in one transaction.
//
// A table has a static part, which is created once, elements of its sets and maps, and parts: chains and sets that
// exist only while something needs them. The name of a part determines what its rules are, so that a part is created or
// removed, and never changed.
package nft
