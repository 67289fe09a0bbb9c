package store

import (
	"bytes"
	"fmt"
	"strconv"
)

// NewEntry makes the entry of obj, written at rev as plain, which Encode made.
// obj becomes the entry's.
func NewEntry(key Key, rev int64, obj Object, plain []byte) *Entry {
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return newEntry(key, rev, obj, plain)
}

// Encodes reports whether the entry's object was encoded as plain.
func (e *Entry) Encodes(plain []byte) bool { return samePlain(plain, e.JSON()) }

// Verify checks that the shared object was not modified: it still encodes to its JSON and has its revision. For
// tests.
func (e *Entry) Verify() error {
	plain, err := Encode(e.Object.DeepCopyObject().(Object))
	if err != nil {
		return err
	}
	if data := e.JSON(); !samePlain(plain, data) {
		return fmt.Errorf("%v: a shared object was modified:\n is  %s\n was %s", e.Key, plain, data)
	}
	if rv := e.Object.GetResourceVersion(); rv != strconv.FormatInt(e.Rev, 10) {
		return fmt.Errorf("%v: resourceVersion %q of a shared object is not %d", e.Key, rv, e.Rev)
	}
	return nil
}

// Canonical reports whether data is JSON as Encode makes it for an object of this kind
// and version: no space before metadata, which is the third field. Such data can
// be used as it is; other data is decoded and encoded again.
func Canonical(data []byte, obj Object) bool {
	gvk := obj.GetObjectKind().GroupVersionKind()
	head := `{"kind":"` + gvk.Kind + `","apiVersion":"` + gvk.GroupVersion().String() + `",`
	rest, ok := bytes.CutPrefix(data, []byte(head))
	return ok && bytes.HasPrefix(rest, metadataField) && obj.GetResourceVersion() == ""
}
