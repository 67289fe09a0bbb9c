// Package nft brings a table of nftables to a desired state: it compares the table with that in the kernel once, and
// then writes only changes, each in one transaction.
//
// A table has a static part, which is created once, elements of its sets and maps, and parts: chains and sets that
// exist only while something needs them. The name of a part determines its rules, so that a part is created or removed,
// and never changed.
package nft
