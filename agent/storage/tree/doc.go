// Package tree writes, reads and opens the files of volumes, and changes their group. Containers may change the files
// at any moment: the package never follows a link out of the volume.
package tree
