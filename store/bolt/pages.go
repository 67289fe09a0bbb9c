package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// PageSize is the size of a page in bytes.
const PageSize = 4096

// bbolt's file format 2 (internal/common/meta.go, page.go), in the byte order of the machine.
const (
	headerSize = 16 // of a page, of an element and of a bucket

	metaMagic   = 0xED0CDAED
	metaVersion = 2
	metaSummed  = 56 // bytes of a meta that its checksum covers

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf's element

	noFreelist = 1<<64 - 1
	maxDepth   = 64
)

var native = binary.NativeEndian

// meta is the content of a meta page.
type meta struct {
	root, freelist, end, txid uint64 // end is the first page that was never used
}

// parseMeta parses a meta page. It returns false if the page is not a meta page, or torn.
func parseMeta(page []byte) (meta, bool) {
	b := page[headerSize:]
	sum := fnv.New64a()
	sum.Write(b[:metaSummed])
	ok := native.Uint32(b) == metaMagic && native.Uint32(b[4:]) == metaVersion &&
		native.Uint32(b[8:]) == PageSize && native.Uint64(b[metaSummed:]) == sum.Sum64()
	return meta{
		root: native.Uint64(b[16:]), freelist: native.Uint64(b[32:]),
		end: native.Uint64(b[40:]), txid: native.Uint64(b[48:]),
	}, ok
}

// currentMeta returns the meta page that bbolt uses: the newer intact one. torn means that the other one is damaged, as
// after a power failure during a commit.
func currentMeta(r io.ReaderAt) (m meta, torn bool, err error) {
	buf := make([]byte, 2*PageSize)
	if _, err := r.ReadAt(buf, 0); err != nil {
		return m, false, fmt.Errorf("read its head: %w", err)
	}
	m0, ok0 := parseMeta(buf[:PageSize])
	m1, ok1 := parseMeta(buf[PageSize:])
	switch {
	case !ok0 && !ok1:
		return m, false, errors.New("both of its meta pages are bad")
	case !ok0 || ok1 && m1.txid > m0.txid:
		return m1, !ok0, nil
	}
	return m0, !ok1, nil
}

// walk visits every reachable page.
type walk struct {
	r    io.ReaderAt
	end  uint64
	seen []bool
}

// CheckPages checks a file of size bytes. torn means that one of its two meta pages is torn.
func CheckPages(r io.ReaderAt, size int64) (torn bool, err error) {
	m, torn, err := currentMeta(r)
	if err != nil {
		return false, err
	}
	if have := uint64(size) / PageSize; m.end > have {
		return torn, fmt.Errorf("it is truncated: it has %d of %d pages", have, m.end)
	}
	p := &walk{r: r, end: m.end, seen: make([]bool, m.end)}
	if err := p.tree(m.root, nil, nil, 0); err != nil {
		return torn, err
	}
	if m.freelist == noFreelist {
		return torn, nil
	}
	return torn, p.freelist(m.freelist)
}

// read returns a page with its overflow pages. Each page may be read only once.
func (p *walk) read(id uint64) ([]byte, error) {
	if id < 2 || id >= p.end {
		return nil, fmt.Errorf("page %d is out of range", id)
	}
	head := make([]byte, PageSize)
	if _, err := p.r.ReadAt(head, int64(id)*PageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	more := uint64(native.Uint32(head[12:]))
	if native.Uint64(head) != id || id+more >= p.end {
		return nil, fmt.Errorf("page %d has a wrong header", id)
	}
	for i := id; i <= id+more; i++ {
		if p.seen[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		p.seen[i] = true
	}
	if more == 0 {
		return head, nil
	}
	whole := make([]byte, (more+1)*PageSize)
	if _, err := p.r.ReadAt(whole, int64(id)*PageSize); err != nil {
		return nil, fmt.Errorf("read page %d: %w", id, err)
	}
	return whole, nil
}

// tree checks the page and everything below it. Its keys must be at least low, and
// less than high if high is not nil.
func (p *walk) tree(id uint64, low, high []byte, depth int) error {
	page, err := p.read(id)
	if err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("page %d is too deep", id)
	}
	switch flags := native.Uint16(page[8:]); flags {
	case flagBranch:
		err = p.branch(page, low, high, depth)
	case flagLeaf:
		err = p.leaf(page, low, high, depth)
	default:
		err = fmt.Errorf("its type is %#x", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// element returns the header of a page's element and its data, whose position and size span reads from the header.
func element(page []byte, i int, span func(header []byte) (pos, size uint64)) (header, data []byte, err error) {
	at := uint64(headerSize + i*headerSize)
	if at+headerSize > uint64(len(page)) {
		return nil, nil, fmt.Errorf("element %d is outside the page", i)
	}
	header = page[at : at+headerSize]
	pos, size := span(header)
	from := at + pos
	if from+size > uint64(len(page)) {
		return nil, nil, fmt.Errorf("element %d extends beyond the page", i)
	}
	return header, page[from : from+size], nil
}

func (p *walk) branch(page, low, high []byte, depth int) error {
	count := int(native.Uint16(page[10:]))
	if count == 0 {
		return errors.New("a branch without children")
	}
	keys, children := make([][]byte, count+1), make([]uint64, count)
	for i := range count {
		header, key, err := element(page, i, func(h []byte) (pos, size uint64) {
			return uint64(native.Uint32(h)), uint64(native.Uint32(h[4:]))
		})
		if err != nil {
			return err
		}
		keys[i], children[i] = key, native.Uint64(header[8:])
	}
	keys[count] = high
	for i, child := range children {
		if err := inOrder(keys[i], low, high, i == 0); err != nil {
			return err
		}
		low = keys[i]
		if err := p.tree(child, low, keys[i+1], depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *walk) leaf(page, low, high []byte, depth int) error {
	for i := range int(native.Uint16(page[10:])) {
		header, data, err := element(page, i, func(h []byte) (pos, size uint64) {
			return uint64(native.Uint32(h[4:])), uint64(native.Uint32(h[8:])) + uint64(native.Uint32(h[12:]))
		})
		if err != nil {
			return err
		}
		size := native.Uint32(header[8:])
		key, value := data[:size], data[size:]
		if err := inOrder(key, low, high, i == 0); err != nil {
			return err
		}
		low = key
		if native.Uint32(header)&flagBucket == 0 {
			continue
		}
		if err := p.bucket(value, depth); err != nil {
			return fmt.Errorf("bucket %q: %w", key, err)
		}
	}
	return nil
}

// bucket checks the tree of a bucket, or its inline leaf.
func (p *walk) bucket(value []byte, depth int) error {
	if len(value) < headerSize {
		return errors.New("it is too short")
	}
	if root := native.Uint64(value); root != 0 {
		return p.tree(root, nil, nil, depth+1)
	}
	inline := value[headerSize:]
	if len(inline) < headerSize || native.Uint16(inline[8:]) != flagLeaf {
		return errors.New("its inline page is bad")
	}
	return p.leaf(inline, nil, nil, depth+1)
}

// inOrder checks that a key is between low and high. The first key may be equal to low.
func inOrder(key, low, high []byte, first bool) error {
	c := bytes.Compare(key, low)
	if low != nil && (c < 0 || c == 0 && !first) || high != nil && bytes.Compare(key, high) >= 0 {
		return fmt.Errorf("key %q is out of order", key)
	}
	return nil
}

// freelist checks the freelist, which is in the file only if another program has written it.
func (p *walk) freelist(id uint64) error {
	page, err := p.read(id)
	if err != nil {
		return err
	}
	ids, count := page[headerSize:], uint64(native.Uint16(page[10:]))
	if count == 0xFFFF {
		count, ids = native.Uint64(ids), ids[8:]
	}
	if native.Uint16(page[8:]) != flagFreelist || count > uint64(len(ids))/8 {
		return fmt.Errorf("page %d is not a freelist", id)
	}
	for i := range count {
		if free := native.Uint64(ids[8*i:]); free < 2 || free >= p.end || p.seen[free] {
			return fmt.Errorf("page %d is both in use and free", free)
		}
	}
	return nil
}
