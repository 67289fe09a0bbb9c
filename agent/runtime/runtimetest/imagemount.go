package runtimetest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"monopod/agent/runtime"
	"monopod/agent/runtime/oci"
)

// testImageMounts tests mounts of images, which image volumes need. A runtime that does not support mounts of images or
// of a folder in an image must return an error.
func testImageMounts(t *testing.T, env Env) {
	p, id := newPod(t, env), importFiles(t, env)
	whole := &cri.Mount{ContainerPath: "/whole", Image: &cri.ImageSpec{Image: id}, Readonly: true}
	part := &cri.Mount{ContainerPath: "/part", Image: &cri.ImageSpec{Image: id}, ImageSubPath: "conf/deep", Readonly: true}
	v, err := env.Runtime.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := runtime.MountsImages(v); err != nil {
		p.refuses(whole, codes.Unimplemented, err.Error())
		return
	}
	p.showsImage(whole)
	if err := runtime.MountsImageFolders(v); err != nil {
		p.refuses(part, codes.Unimplemented, err.Error())
		return
	}
	p.showsFolder(part)
	part.ImageSubPath = "none"
	p.refuses(part, codes.Unknown, "none")
	part.ImageSubPath = "greeting"
	p.refuses(part, codes.Unknown, "only directory subpath is supported")
}

func (p *pod) showsImage(whole *cri.Mount) {
	p.Helper()
	config := p.container("-listen", ":0")
	config.Mounts = []*cri.Mount{whole}
	id := p.run(config)
	p.says(id, "cat /whole/greeting", 0, "moin\n")
	p.says(id, "cat /whole/again", 0, "moin\n")
	p.says(id, "ls /whole", 0, "again\nconf\ngreeting\n")
	p.says(id, "stat /whole/conf/deep/secret", 0, "/whole/conf/deep/secret -r-------- 7 8\n")
	p.says(id, "cat /whole/none", 1, "")
	p.says(id, "write /whole/greeting bye", 1, "")
	p.refuses(&cri.Mount{ContainerPath: "/x", Image: &cri.ImageSpec{Image: "sha256:" + strings.Repeat("0", 64)},
		Readonly: true}, codes.NotFound, "")
}

func (p *pod) showsFolder(part *cri.Mount) {
	p.Helper()
	config := p.container("-listen", ":0")
	config.Metadata.Name, config.LogPath, config.Mounts = "part", "part.log", []*cri.Mount{part}
	id := p.run(config)
	p.says(id, "ls /part", 0, "secret\n")
	p.says(id, "cat /part/secret", 0, "psst\n")
}

// says runs a command of the sample program, and checks its exit code and output. The words of the command contain no
// spaces.
func (p *pod) says(id, command string, wantCode int32, want string) {
	p.Helper()
	stdout, stderr, code := p.execute(id, strings.Fields(command)...)
	if code != wantCode || stdout != want {
		p.Errorf("%s: code %d, stdout %q, stderr %q, want %d, %q", command, code, stdout, stderr, wantCode, want)
	}
}

// refuses checks that creating a container with this mount fails.
func (p *pod) refuses(m *cri.Mount, code codes.Code, text string) {
	p.Helper()
	config := p.container()
	config.Metadata.Name, config.Mounts = "refused", []*cri.Mount{m}
	_, err := p.Runtime.CreateContainer(p.Context(), p.id, config, p.config)
	wantCode(p.T, "mount "+m.String(), err, code)
	if err == nil || !strings.Contains(err.Error(), "ImageVolumeMountFailed: ") || !strings.Contains(err.Error(), text) {
		p.Errorf("mount %v: %v", m, err)
	}
	p.Logf("refused: %v", err)
}

// importFiles imports an image that contains only files, and returns its ID.
func importFiles(t *testing.T, env Env) (id string) {
	t.Helper()
	name := "monopod.local/files:" + uuid.NewString()
	var out bytes.Buffer
	if err := oci.Archive(&out, oci.Image{Ref: name, Files: []oci.File{
		{Path: "greeting", Mode: 0o644, Data: []byte("moin\n")},
		{Path: "again", Mode: fs.ModeSymlink | 0o777, Data: []byte("greeting")},
		{Path: "conf/deep/secret", Mode: 0o400, UID: 7, GID: 8, Data: []byte("psst\n")},
	}}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "files.tar")
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := env.Runtime.ImportImages(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	return pulledAs(t, env, name).Id
}
