// Package tree works on the files of volumes, which containers may change at any moment: it writes, reads and opens
// them and gives them to a group, without following a link out of the volume.
package tree
