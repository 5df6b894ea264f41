package objects

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
)

const (
	// incoming holds unfinished objects. No key begins with a dot.
	incoming      = ".incoming"
	fileMode      = 0o600
	directoryMode = 0o700
	// placeTries is for another process of the service that empties the directory of unfinished objects when it starts.
	placeTries = 5
)

// Directory keeps one file per object, at the path that its key spells. An object is written to a separate directory,
// synced, and then put in place by one rename, or by one link, which fails if the place is taken.
type Directory struct {
	root string
}

// OpenDirectory creates the directory. Unfinished objects stay: they may belong to another process.
func OpenDirectory(root string) (*Directory, error) {
	if err := os.MkdirAll(root, directoryMode); err != nil {
		return nil, fmt.Errorf("opening the object store: %w", err)
	}
	// A process that may not read the parent did not make the directory.
	if err := syncDirectory(filepath.Dir(root)); err != nil && !errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("opening the object store: %w", err)
	}
	return &Directory{root: root}, nil
}

// Put implements Store.
func (d *Directory) Put(ctx context.Context, key string, content []byte) error {
	return d.place(ctx, key, content, os.Rename)
}

// PutIfAbsent implements Store.
func (d *Directory) PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error) {
	err := d.place(ctx, key, content, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// Get implements Store.
func (d *Directory) Get(ctx context.Context, key string, part Range) ([]byte, error) {
	path, err := d.pathOf(ctx, key)
	if err != nil {
		return nil, err
	}
	file, err := os.Open(path)
	if isAbsence(err) {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", key, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, key)
	}
	return readPart(file, info.Size(), key, part)
}

func readPart(file io.ReaderAt, size int64, key string, part Range) ([]byte, error) {
	length := size - part.Offset
	if part.Length > 0 {
		length = min(length, part.Length)
	}
	if length > MaxBytes {
		return nil, fmt.Errorf("getting %s: %d bytes are more than %d", key, length, MaxBytes)
	}
	if length <= 0 {
		if part == (Range{}) {
			return nil, nil
		}
		return nil, fmt.Errorf("%w: %s has no byte at %d", ErrNotFound, key, part.Offset)
	}
	content := make([]byte, length)
	if n, err := file.ReadAt(content, part.Offset); err != nil && !errors.Is(err, io.EOF) || int64(n) < length {
		return nil, fmt.Errorf("getting %s: read %d of %d bytes: %w", key, n, length, err)
	}
	return content, nil
}

// Delete implements Store.
func (d *Directory) Delete(ctx context.Context, key string) error {
	path, err := d.pathOf(ctx, key)
	if err != nil {
		return err
	}
	if err = os.Remove(path); err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil && !isAbsence(err) {
		return fmt.Errorf("deleting %s: %w", key, err)
	}
	return nil
}

// List implements Store.
func (d *Directory) List(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		// The deepest directory that holds all of the keys: siblings need not be read.
		start := prefix[:strings.LastIndexByte(prefix, '/')+1]
		walk := &walk{ctx: ctx, root: d.root, prefix: prefix, after: after, yield: yield}
		walk.visit(start)
	}
}

type walk struct {
	ctx                 context.Context
	root, prefix, after string
	yield               func(Info, error) bool
}

// visit yields the objects below a directory, which is "" or ends with a slash. It returns false to end the walk.
func (w *walk) visit(directory string) bool {
	if err := w.ctx.Err(); err != nil {
		return w.yield(Info{}, err)
	}
	entries, err := os.ReadDir(filepath.Join(w.root, directory))
	if err != nil {
		// A directory that another process removed, or a prefix that names none, has no objects.
		return isAbsence(err) || w.yield(Info{}, fmt.Errorf("listing %s: %w", directory, err))
	}
	// Sorted like whole keys, in which a slash follows the name of a directory.
	keys := make([]string, 0, len(entries))
	for _, entry := range entries {
		if entry.IsDir() {
			keys = append(keys, directory+entry.Name()+"/")
		} else {
			keys = append(keys, directory+entry.Name())
		}
	}
	sort.Strings(keys)
	for _, key := range keys {
		if !w.visitKey(key) {
			return false
		}
	}
	return true
}

func (w *walk) visitKey(key string) bool {
	if strings.HasPrefix(key, ".") {
		return true
	}
	if strings.HasSuffix(key, "/") {
		isInside := strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)
		isPassed := key < w.after && !strings.HasPrefix(w.after, key)
		return !isInside || isPassed || w.visit(key)
	}
	if !strings.HasPrefix(key, w.prefix) || key <= w.after {
		return true
	}
	info, err := os.Lstat(filepath.Join(w.root, key))
	if isAbsence(err) {
		return true
	}
	if err != nil {
		return w.yield(Info{}, fmt.Errorf("listing %s: %w", key, err))
	}
	return w.yield(Info{Key: key, Size: info.Size()}, nil)
}

func (d *Directory) place(ctx context.Context, key string, content []byte, move func(from, to string) error) error {
	path, err := d.pathOf(ctx, key)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		err = d.placeOnce(path, content, move)
		if err == nil || !errors.Is(err, fs.ErrNotExist) || try == placeTries || ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("putting %s: %w: %w", key, ErrFull, err)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("putting %s: %w", key, err)
	}
	return err
}

func (d *Directory) placeOnce(path string, content []byte, move func(from, to string) error) error {
	if err := os.MkdirAll(filepath.Join(d.root, incoming), directoryMode); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	unfinished := filepath.Join(d.root, incoming, hex.EncodeToString(id[:]))
	defer os.Remove(unfinished)
	if err := writeSynced(unfinished, content); err != nil {
		return err
	}
	if err := ensureDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	if err := move(unfinished, path); err != nil {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func (d *Directory) pathOf(ctx context.Context, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := CheckKey(key); err != nil {
		return "", err
	}
	return filepath.Join(d.root, filepath.FromSlash(key)), nil
}

func writeSynced(path string, content []byte) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err = file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}

// ensureDirectory creates a directory and its parents, and syncs the parent of each new one.
func ensureDirectory(path string) error {
	err := os.Mkdir(path, directoryMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		if err = ensureDirectory(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, directoryMode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}

func isAbsence(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}
