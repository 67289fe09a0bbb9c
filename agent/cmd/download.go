package cmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jedisct1/go-minisign"

	"monopod/agent/cmd/commandline"
)

// Sizes in bytes that a download does not exceed.
const (
	maxProgram = 512 << 20
	maxSums    = 1 << 20 // SHA256SUMS and its signature
)

// download fetches programs of a release, which `make dist` makes.
type download struct {
	key       string // minisign's public key, or a file with it; empty: the one inside the program
	unsigned  bool   // do not check the signature
	timeout   time.Duration
	transport http.RoundTripper // nil: http.DefaultTransport
}

// fetch writes the program at an address to a file, and returns its address, and who signed it when. It fails unless
// the program's checksum is in SHA256SUMS beside it, and SHA256SUMS.minisig is the signature of that by the key.
func (d download) fetch(ctx context.Context, address, file string) (from, signer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	program, err := url.Parse(address)
	if err != nil {
		return "", "", err
	}
	if program.Scheme != "https" && program.Scheme != "file" {
		return "", "", fmt.Errorf("cannot download %s: the address must begin with https:// or file://", address)
	}
	if strings.HasSuffix(program.Path, "/") {
		arch := runtime.GOARCH
		if arch == "arm" {
			arch = "armv7"
		}
		program = program.JoinPath("monopod-linux-" + arch)
	}
	sums, signer, err := d.sums(ctx, program.JoinPath("..", "SHA256SUMS"))
	if err != nil {
		return "", "", err
	}
	want, err := sumOf(sums, filepath.Base(program.Path))
	if err != nil {
		return "", "", err
	}
	got, err := d.save(ctx, program, file)
	if err != nil {
		return "", "", err
	}
	if got != want {
		return "", "", fmt.Errorf("%s is damaged or not complete: its SHA-256 checksum is %s, not %s, as SHA256SUMS says",
			program, got, want)
	}
	return program.String(), signer, nil
}

// sums returns the checksums of a release, and who signed them.
func (d download) sums(ctx context.Context, from *url.URL) (sums []byte, signer string, err error) {
	var key minisign.PublicKey
	if !d.unsigned {
		if key, err = d.publicKey(); err != nil {
			return nil, "", err
		}
	}
	if sums, err = d.read(ctx, from); err != nil || d.unsigned {
		return sums, ", whose signature was not checked", err
	}
	text, err := d.read(ctx, from.JoinPath("..", "SHA256SUMS.minisig"))
	if err != nil {
		return nil, "", fmt.Errorf("the release is not signed: %w", err)
	}
	signature, err := minisign.DecodeSignature(string(text))
	if err == nil {
		_, err = key.Verify(sums, signature)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s is not signed by the key %s: %w", from, commandline.KeyID(key), err)
	}
	return sums, fmt.Sprintf(", signed by the key %s (%s)", commandline.KeyID(key),
		strings.TrimPrefix(signature.TrustedComment, "trusted comment: ")), nil
}

func (d download) publicKey() (key minisign.PublicKey, err error) {
	text := cmp.Or(d.key, commandline.PublicKey())
	if text == "" {
		return key, errors.New("this program contains no key that signs releases: name the release's with --key, " +
			"or check only its checksum with --insecure-skip-signature")
	}
	if key, err = minisign.NewPublicKey(text); err != nil && d.key != "" {
		key, err = minisign.NewPublicKeyFromFile(d.key)
	}
	if err != nil {
		return key, fmt.Errorf("%s is neither a public key of minisign nor a file with one: %w", text, err)
	}
	return key, nil
}

// sumOf returns the checksum of a file that a SHA256SUMS lists.
func sumOf(sums []byte, name string) (string, error) {
	for line := range strings.Lines(string(sums)) {
		if sum, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok && strings.TrimLeft(file, " *") == name {
			return strings.ToLower(sum), nil
		}
	}
	return "", fmt.Errorf("SHA256SUMS does not list %s: it is not a program of this release", name)
}

// read returns the content of a small file.
func (d download) read(ctx context.Context, from *url.URL) ([]byte, error) {
	var content bytes.Buffer
	err := d.copy(ctx, from, &content, maxSums)
	return content.Bytes(), err
}

// save writes a program to a file, and returns its checksum.
func (d download) save(ctx context.Context, from *url.URL, file string) (sum string, err error) {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a download that was killed
		return "", err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	err = d.copy(ctx, from, io.MultiWriter(f, hash), maxProgram)
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, f.Close())
}

// copy copies the file at an address.
func (d download) copy(ctx context.Context, from *url.URL, to io.Writer, limit int64) error {
	body, err := d.open(ctx, from)
	if err != nil {
		return fmt.Errorf("cannot download %s: %w", from, err)
	}
	defer body.Close()
	n, err := io.Copy(to, io.LimitReader(body, limit+1))
	switch {
	case err != nil:
		return fmt.Errorf("the download of %s ended after %d bytes: %w", from, n, err)
	case n > limit:
		return fmt.Errorf("%s has more than %d bytes, which upgrade does not download", from, limit)
	}
	return nil
}

func (d download) open(ctx context.Context, from *url.URL) (io.ReadCloser, error) {
	if from.Scheme == "file" {
		return os.Open(from.Path)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: d.transport, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if req.URL.Scheme != "https" || len(via) > 5 {
			return fmt.Errorf("redirected to %s", req.URL)
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New(resp.Status)
	}
	return resp.Body, nil
}
