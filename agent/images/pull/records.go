package pull

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/host/checkpoint"
)

// Records remember on the disk which images were pulled and with whose credentials, as kubelet does: a record
// that a pull goes on is written before it, so that an image whose pull was interrupted is not taken for one that
// was preloaded, and one of the credentials after it. Only hashes of credentials are stored. Files are written
// only when an image is pulled, or when a pod's new credentials turn out to be the known ones.
type Records struct {
	dir  string // contains pulling and pulled; one small file per image in each
	mu   sync.Mutex
	busy map[string]int // pulls that go on, by image; guarded, as the files are, by mu
	// stale are pulls that the end of a process interrupted: their images may be there. guarded by mu
	stale map[string]bool
}

// pulling is the record of a pull that goes on.
type pulling struct {
	Image string `json:"image"`
}

// pulled is the record of an image. Its fields are those of kubelet's ImagePulledRecord.
type pulled struct {
	Updated time.Time `json:"lastUpdatedTime"`
	Ref     string    `json:"imageRef"`
	// Credentials are by repository: the same image may be pulled from several.
	Credentials map[string]access `json:"credentialMapping,omitempty"`
}

// access is who can pull an image.
type access struct {
	Secrets []Source `json:"kubernetesSecrets,omitempty"`
	Node    bool     `json:"nodePodsAccessible,omitempty"` // all pods: it was pulled without a pod's credentials
}

// maxSecrets bounds the secrets that are added to a record without a pull.
const maxSecrets = 100

// NewRecords returns the records in a folder, which is created at the first pull.
func NewRecords(dir string) (*Records, error) {
	r := &Records{dir: dir, busy: map[string]int{}, stale: map[string]bool{}}
	entries, err := os.ReadDir(filepath.Join(dir, "pulling"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("records of image pulls: %w", err)
	}
	for _, e := range entries {
		var p pulling
		if ok, err := read(filepath.Join(dir, "pulling", e.Name()), &p); err == nil && ok {
			r.stale[p.Image] = true
		}
	}
	return r, nil
}

func (r *Records) file(kind, name string) string {
	sum := sha256.Sum256([]byte(name))
	return filepath.Join(r.dir, kind, "sha256-"+hex.EncodeToString(sum[:]))
}

func read(path string, into any) (bool, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	return err == nil, err
}

func write(path string, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = checkpoint.File(path).Write(text)
	}
	return err
}

// begin records that a pull of an image begins. end must be called after it.
func (r *Records) begin(image string) error {
	image = repositoryTag(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := write(r.file("pulling", image), pulling{image}); err != nil {
		return fmt.Errorf("failed to record image pull intent: %w", err)
	}
	r.busy[image]++
	return nil
}

// end records the result of a pull: the image and the source of the credentials, nil if they are no pod's. img is
// nil if the pull failed. When the result cannot be recorded, the record that a pull goes on stays: every pod has
// to authenticate then.
func (r *Records) end(image string, img *cri.Image, source *Source) error {
	full := repositoryTag(image)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy[full]--; r.busy[full] == 0 {
		delete(r.busy, full)
	}
	if img == nil && r.stale[full] {
		return nil
	}
	if img != nil {
		if err := r.add(image, img.Id, source); err != nil {
			return fmt.Errorf("failed to record who pulled image %q: %w", image, err)
		}
		delete(r.stale, full)
	}
	if r.busy[full] > 0 {
		return nil
	}
	return os.RemoveAll(r.file("pulling", full))
}

// Allow adds the credentials of a secret to the record of an image.
func (r *Records) allow(image, id string, source Source) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(image, id, &source)
}

// add adds credentials to the record of an image; nil: every pod may use it. The caller holds mu.
func (r *Records) add(image, id string, source *Source) error {
	path, rec := r.file("pulled", id), pulled{}
	if _, err := read(path, &rec); err != nil {
		rec = pulled{} // damaged; it is replaced
	}
	name := repository(image)
	who, known := rec.Credentials[name]
	at := -1
	if source != nil {
		at = slices.IndexFunc(who.Secrets, func(s Source) bool { return s.Same(*source) })
	}
	switch {
	case known && (who.Node || at >= 0 && who.Secrets[at] == *source):
		return nil
	case source == nil:
		who = access{Node: true}
	case at >= 0:
		who.Secrets[at] = *source
	default:
		who.Secrets = append(who.Secrets, *source)
	}
	if rec.Credentials == nil {
		rec.Credentials = map[string]access{}
	}
	rec.Credentials[name], rec.Ref, rec.Updated = who, id, time.Now().UTC().Truncate(time.Second)
	return write(path, rec)
}

// find returns who can pull an image; known is false if it was never pulled here.
func (r *Records) find(image string, img *cri.Image) (who access, known bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var rec pulled
	if known, err = read(r.file("pulled", img.Id), &rec); known || err != nil {
		return rec.Credentials[repository(image)], true, err
	}
	for _, name := range append([]string{repositoryTag(image)}, slices.Concat(img.RepoTags, img.RepoDigests)...) {
		known = known || r.busy[name] > 0 || r.stale[name]
	}
	return access{}, known, nil
}

// Removed removes the record of an image that was removed.
func (r *Records) Removed(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = os.RemoveAll(r.file("pulled", id)) // a record without an image is only disk space
}

// repository is the full name of an image without tag and digest.
func repository(image string) string {
	if named, err := reference.ParseNormalizedNamed(image); err == nil {
		return named.Name()
	}
	return image
}

// repositoryTag is the full name of an image, as the runtime reports it.
func repositoryTag(image string) string {
	if named, err := reference.ParseDockerRef(image); err == nil {
		return named.String()
	}
	return image
}
