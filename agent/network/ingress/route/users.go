package route

import (
	"bufio"
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
)

const (
	// maxCost is the maximum cost of a bcrypt hash: about a second of CPU time for each check.
	maxCost = 14
	// maxVerified is the maximum number of verified passwords that Users remember.
	maxVerified = 1000
)

// Users are the users of a basic authentication. Their methods are safe for concurrent use.
type Users struct {
	hashes map[string]string // of passwords, by name
	some   string            // a hash, against which the passwords of unknown users are checked

	checking sync.Mutex // held during a check: wrong passwords must not use more than one CPU

	mu       sync.Mutex // guards verified
	verified map[[sha256.Size]byte]bool
}

// ParseUsers reads the users of a Secret: the file of htpasswd in the key auth, or a key for each user. Users with an
// unknown format of hash are missing and part of the error.
func ParseUsers(s *corev1.Secret, byKey bool) (*Users, error) {
	u := &Users{hashes: map[string]string{}, verified: map[[sha256.Size]byte]bool{}}
	var errs []error
	add := func(name, hash string) {
		if err := checkHash(hash); err != nil {
			errs = append(errs, fmt.Errorf("user %q: %w", name, err))
			return
		}
		u.hashes[name], u.some = hash, hash
	}
	if byKey {
		for name, hash := range s.Data {
			add(name, strings.TrimSpace(string(hash)))
		}
	} else {
		for lines := bufio.NewScanner(bytes.NewReader(s.Data["auth"])); lines.Scan(); {
			line := strings.TrimSpace(lines.Text())
			if name, rest, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, "#") {
				hash, _, _ := strings.Cut(rest, ":") // a comment follows
				add(name, hash)
			}
		}
	}
	if len(u.hashes) == 0 {
		return nil, errors.Join(append(errs, errors.New("it has no users"))...)
	}
	return u, errors.Join(errs...)
}

func checkHash(hash string) error {
	switch {
	case strings.HasPrefix(hash, "$2"):
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil || cost > maxCost {
			return fmt.Errorf("the bcrypt hash is invalid, or its cost above %d", maxCost)
		}
	case strings.HasPrefix(hash, "$apr1$") || strings.HasPrefix(hash, "{SHA}"):
	default:
		return errors.New("the format of the password is not bcrypt, apr1 or {SHA}; htpasswd -B writes bcrypt")
	}
	return nil
}

// Check reports whether a user has a password. It remembers verified ones, because a page with many parts sends the
// password with each, and bcrypt is made to be slow.
func (u *Users) Check(name, password string) bool {
	key := sha256.Sum256([]byte(name + ":" + password)) // a name has no colon
	u.mu.Lock()
	known := u.verified[key]
	u.mu.Unlock()
	if known {
		return true
	}
	hash, exists := u.hashes[name]
	if !exists {
		hash = u.some
	}
	u.checking.Lock()
	ok := matches(hash, password) && exists
	u.checking.Unlock()
	if ok {
		u.mu.Lock()
		if len(u.verified) >= maxVerified {
			clear(u.verified)
		}
		u.verified[key] = true
		u.mu.Unlock()
	}
	return ok
}

func matches(hash, password string) bool {
	if rest, ok := strings.CutPrefix(hash, "{SHA}"); ok {
		sum := sha1.Sum([]byte(password))
		return equal(rest, base64.StdEncoding.EncodeToString(sum[:]))
	}
	if rest, ok := strings.CutPrefix(hash, "$apr1$"); ok {
		salt, _, _ := strings.Cut(rest, "$")
		return equal(hash, apr1(password, salt))
	}
	return bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil
}

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// apr1 returns the hash that htpasswd -m writes; upstream: apr_md5_encode of Apache's APR.
func apr1(password, salt string) string {
	salt = salt[:min(len(salt), 8)]
	inner := md5.Sum([]byte(password + salt + password))
	text := []byte(password + "$apr1$" + salt)
	for n := len(password); n > 0; n -= md5.Size {
		text = append(text, inner[:min(n, md5.Size)]...)
	}
	for n := len(password); n > 0; n >>= 1 {
		if n&1 == 1 {
			text = append(text, 0)
		} else {
			text = append(text, password[0])
		}
	}
	sum := md5.Sum(text)
	for i := range 1000 {
		var round []byte
		before, after := password, string(sum[:])
		if i%2 == 0 {
			before, after = after, before
		}
		round = append(round, before...)
		if i%3 != 0 {
			round = append(round, salt...)
		}
		if i%7 != 0 {
			round = append(round, password...)
		}
		sum = md5.Sum(append(round, after...))
	}
	const digits = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	var out strings.Builder
	put := func(v uint, n int) {
		for range n {
			out.WriteByte(digits[v&63])
			v >>= 6
		}
	}
	for _, at := range [][3]int{{0, 6, 12}, {1, 7, 13}, {2, 8, 14}, {3, 9, 15}, {4, 10, 5}} {
		put(uint(sum[at[0]])<<16|uint(sum[at[1]])<<8|uint(sum[at[2]]), 4)
	}
	put(uint(sum[11]), 2)
	return "$apr1$" + salt + "$" + out.String()
}
