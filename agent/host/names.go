package host

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Names returns the names in a folder, sorted; none if it cannot be read. It does not update the folder's access
// time if the file system permits that, so that reading causes no write.
func Names(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, os.ErrPermission) { // O_NOATIME is only for the owner
		f, err = os.Open(dir)
	}
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	slices.Sort(names)
	return names
}
