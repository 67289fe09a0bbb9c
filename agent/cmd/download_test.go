package cmd

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"debug/elf"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jedisct1/go-minisign"
)

// signer is a key of minisign, as a text and as what signs.
func signer(t *testing.T) (public string, private minisign.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	private = minisign.PrivateKey{SignatureAlgorithm: [2]byte{'E', 'd'}, KeyId: [8]byte{1, 2, 3}}
	copy(private.SecretKey[:], key)
	return base64.StdEncoding.EncodeToString(append([]byte{'E', 'd', 1, 2, 3, 0, 0, 0, 0, 0}, pub...)), private
}

// An upgrade from an address takes only a complete program whose checksum the key has signed. Otherwise nothing changes.
func TestUpgradeFromAnAddress(t *testing.T) {
	t.Parallel()
	key, private := signer(t)
	stranger, _ := signer(t)
	unchanged := newBox(t).installed("v1")
	for name, c := range map[string]struct {
		change func(files map[string][]byte) // of the release
		trust  download
		path   string
		want   string // part of the error; empty: none
	}{
		"good":           {trust: download{key: key}},
		"its folder":     {trust: download{key: key}, path: "/v2/"},
		"not signed":     {func(f map[string][]byte) { delete(f, "SHA256SUMS.minisig") }, download{key: key}, "", "not signed: "},
		"unchecked":      {func(f map[string][]byte) { delete(f, "SHA256SUMS.minisig") }, download{unsigned: true}, "", ""},
		"another key":    {nil, download{key: stranger}, "", "SHA256SUMS is not signed by the key "},
		"no key":         {nil, download{}, "", "contains no key that signs releases"},
		"wrong key":      {nil, download{key: "/none"}, "", "neither a public key of minisign nor a file with one"},
		"other sums":     {func(f map[string][]byte) { f["SHA256SUMS"][0] ^= 1 }, download{key: key}, "", "Invalid signature"},
		"other comment":  {forgeComment, download{key: key}, "", "Invalid global signature"},
		"no sums":        {func(f map[string][]byte) { delete(f, "SHA256SUMS") }, download{key: key}, "", "SHA256SUMS: 404"},
		"changed":        {func(f map[string][]byte) { f["program"][0] ^= 1 }, download{key: key}, "", "damaged or not complete"},
		"cut off":        {func(f map[string][]byte) { f["cut"] = nil }, download{key: key}, "", "unexpected EOF"},
		"not in release": {nil, download{key: key}, "/v2/other", "SHA256SUMS does not list other"},
		"too slow":       {nil, download{key: key, timeout: time.Nanosecond}, "", "deadline exceeded"},
		"redirect":       {nil, download{key: key}, "/away/program", "redirected to http://"},
		"not https":      {nil, download{key: key}, "http", "must begin with https://"},
	} {
		t.Run(name, func(t *testing.T) {
			b := unchanged
			if c.want == "" {
				b = newBox(t).installed("v1")
			}
			program, err := os.ReadFile(b.make("v2", "ok"))
			if err != nil {
				t.Fatal(err)
			}
			files := map[string][]byte{"program": program, "SHA256SUMS": sumsOf(program)}
			signature, err := private.Sign(files["SHA256SUMS"], minisign.SignOptions{TrustedComment: "monopod v2", Hashed: true})
			if err != nil {
				t.Fatal(err)
			}
			files["SHA256SUMS.minisig"] = signature.Encode()
			if c.change != nil {
				c.change(files)
			}
			server := httptest.NewTLSServer(release(files))
			t.Cleanup(server.Close)
			d := c.trust
			d.transport = server.Client().Transport
			if d.timeout == 0 {
				d.timeout = time.Minute
			}
			address := server.URL + c.path
			switch c.path {
			case "":
				address += "/v2/program"
			case "http":
				address = "http://example.org/v2/program"
			}
			err = b.upgradeFrom(t.Context(), address, d)
			if _, left := os.Stat(b.at("/data/upgrade.download")); left == nil {
				t.Error("the download is still there")
			}
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("got %v, want %s", err, c.want)
				}
				if calls := b.calls(); calls != "" {
					t.Errorf("systemctl %s", calls)
				}
				b.runs("v1")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b.runs("v2")
			if want := ", signed by the key 0000000000030201 (monopod v2)\n"; !d.unsigned &&
				!strings.Contains(b.out.String(), want) {
				t.Errorf("the output lacks %q:\n%s", want, &b.out)
			}
		})
	}
}

func forgeComment(files map[string][]byte) {
	files["SHA256SUMS.minisig"] = bytes.Replace(files["SHA256SUMS.minisig"], []byte("monopod v2"), []byte("monopod v3"), 1)
}

// sumsOf returns a SHA256SUMS that lists a program by the names under which the tests serve it.
func sumsOf(program []byte) (sums []byte) {
	arch := strings.Replace(runtime.GOARCH+"$", "arm$", "armv7$", 1)
	for _, name := range []string{"program", "monopod-linux-" + strings.TrimSuffix(arch, "$")} {
		sums = fmt.Appendf(sums, "%x  %s\n", sha256.Sum256(program), name)
	}
	return sums
}

// release serves files in the folder v2, and redirects to http in the folder away. With a file named cut, the program
// ends before its end.
func release(files map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		if strings.HasPrefix(r.URL.Path, "/away/") {
			http.Redirect(w, r, "http://example.org/"+name, http.StatusFound)
			return
		}
		if strings.HasPrefix(name, "monopod-") {
			name = "program"
		}
		content, ok := files[name]
		if _, cut := files["cut"]; cut && name == "program" {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			content = content[:len(content)/2]
		}
		if !ok {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write(content) // after an error the client has its own
	})
}

// A file:// address is checked as one with https:// is; a plain file is not.
func TestUpgradeFromAFolder(t *testing.T) {
	t.Parallel()
	b := newBox(t).installed("v1")
	file := b.make("v2", "ok")
	d := download{unsigned: true, timeout: time.Minute}
	if err := b.upgradeFrom(t.Context(), "file://"+file, d); err == nil || !strings.Contains(err.Error(), "SHA256SUMS") {
		t.Errorf("without checksums: %v", err)
	}
	b.runs("v1")
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.write("new/SHA256SUMS", strings.ReplaceAll(string(sumsOf(program)), "  program", " *v2"))
	if err := b.upgradeFrom(t.Context(), "file://"+file, d); err != nil {
		t.Fatal(err)
	}
	b.runs("v2")
}

// A program for another processor, or without its end, is refused before it is executed.
func TestCheckELF(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	other := bytes.Clone(program)
	other[18], other[19] = byte(elf.EM_S390), 0
	for want, content := range map[string][]byte{
		"": program, "another processor: EM_S390": other, "not a complete program": program[:len(program)/2],
		"not a complete program: ": program[:30],
	} {
		err := checkELF(bytes.NewReader(content), int64(len(content)), runtime.GOARCH)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if err := checkELF(strings.NewReader("#!/bin/sh\n"), 10, runtime.GOARCH); err != nil {
		t.Errorf("a script: %v", err)
	}
}
