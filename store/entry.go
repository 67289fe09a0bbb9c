package store

import (
	"bytes"
	"fmt"
	"strconv"
)

// NewEntry returns the entry of obj, which was written at rev. plain is its JSON from Encode. The caller must not use
// obj afterwards.
func NewEntry(key Key, rev int64, obj Object, plain []byte) *Entry {
	obj.SetResourceVersion(strconv.FormatInt(rev, 10))
	return newEntry(key, rev, obj, plain)
}

// Encodes reports whether plain, JSON from Encode, is the JSON of the entry's object.
func (e *Entry) Encodes(plain []byte) bool { return samePlain(plain, e.JSON()) }

// Verify is for tests. It checks that the shared object was not modified: its JSON and revision are still the same.
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

// Canonical reports whether data has the format of Encode for an object of this kind and version: no spaces before
// metadata, which is the third field. Other data must be decoded and encoded again.
func Canonical(data []byte, obj Object) bool {
	gvk := obj.GetObjectKind().GroupVersionKind()
	head := `{"kind":"` + gvk.Kind + `","apiVersion":"` + gvk.GroupVersion().String() + `",`
	rest, ok := bytes.CutPrefix(data, []byte(head))
	return ok && bytes.HasPrefix(rest, metadataField) && obj.GetResourceVersion() == ""
}
