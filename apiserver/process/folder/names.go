package folder

import (
	"errors"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Names are the names in a folder, sorted; none where it cannot be read. Looking
// must not become a write: the time of the last look is left as it is, where the
// file system lets us.
func Names(dir string) []string {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOATIME, 0)
	if errors.Is(err, os.ErrPermission) { // the folder is somebody else's
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
