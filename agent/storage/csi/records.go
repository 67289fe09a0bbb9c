package csi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"monopod/agent/host/checkpoint"
)

const (
	// podFolder is the name of the folder with a pod's volumes of CSI drivers.
	podFolder = "kubernetes.io~csi"

	plugin   = "kubernetes.io/csi"
	fileName = "vol_data.json"
)

// record says that a driver was, or may have been, asked to stage or to publish a volume.
type record struct {
	Driver string `json:"driverName"`
	Handle string `json:"volumeHandle"`
	Volume string `json:"specVolID"`       // name of the PersistentVolume; inline: of the pod's volume
	Target string `json:"target"`          // path that was staged or published
	Block  bool   `json:"block,omitempty"` // it is a device
	Attach bool   `json:"attach,omitempty"`
	Boot   string `json:"bootID"` // after another boot, nothing is mounted
}

func (r *record) id() id { return id{r.Driver, r.Handle} }

func file(dir string) checkpoint.File { return checkpoint.File(filepath.Join(dir, fileName)) }

// save writes the record into a folder, which it creates.
func (r *record) save(dir string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return file(dir).Save(r)
}

// load returns the record in a folder; nil: there is none. A damaged record is set aside: what is mounted is then
// unmounted without the driver.
func (m *Manager) load(dir string) (*record, error) {
	r := &record{}
	found, err := file(dir).Load(r)
	if errors.Is(err, checkpoint.ErrDamaged) {
		lost, err := file(dir).StartOver(err, "the driver is not asked to unmount the volume")
		if err != nil {
			return nil, err
		}
		m.cfg.Log.Error("record of a CSI volume", zap.Error(lost))
		return nil, nil
	}
	if !found {
		return nil, err
	}
	return r, err
}

// remove removes the record, and its folder if it is empty then.
func (r *record) remove(dir string) error {
	if err := file(dir).Remove(); err != nil {
		return err
	}
	return removeEmpty(dir)
}

// removeEmpty removes a file or an empty folder; a missing one is not an error.
func removeEmpty(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// stageDir returns the folder of the record about the staging of a volume.
func (m *Manager) stageDir(v id) string {
	return filepath.Join(m.cfg.Dir, "plugins", plugin, v.driver, fmt.Sprintf("%x", sha256.Sum256([]byte(v.handle))))
}

// readRecords reads what an earlier process has staged and published.
func (m *Manager) readRecords() error {
	staged, err := filepath.Glob(filepath.Join(m.cfg.Dir, "plugins", plugin, "*", "*", fileName))
	if err != nil {
		return err
	}
	published, err := filepath.Glob(filepath.Join(m.cfg.Dir, "pods", "*", "volumes", podFolder, "*", fileName))
	if err != nil {
		return err
	}
	for _, path := range append(staged, published...) {
		dir := filepath.Dir(path)
		r, err := m.load(dir)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		d := m.device(r.id())
		d.attached = d.attached || r.Attach
		if dir == m.stageDir(d.id) {
			d.staged = r
			continue
		}
		pod, _, _ := strings.Cut(strings.TrimPrefix(dir, filepath.Join(m.cfg.Dir, "pods")+"/"), "/")
		d.users[dir] = &user{pod: types.UID(pod)}
	}
	return nil
}

// mounted reports whether something is mounted on the record's target since the machine started.
func (m *Manager) mounted(r *record) (bool, error) {
	if r.Boot != m.cfg.Boot {
		return false, nil
	}
	mounted, err := m.cfg.Mounter.Mounted(r.Target)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return mounted, err
}
