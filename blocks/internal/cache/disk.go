// Package cache keeps copies of stored data: on disk for all exports of a server, and in memory.
package cache

import (
	"container/list"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

const (
	unfinishedPrefix = ".new-"
	// fileOverhead is counted for each file, so that many small files do not exceed the limit.
	fileOverhead = 4096
)

// Disk is a directory of files, the ones used last, up to a number of bytes. Nothing is synced: after a crash a file may
// be torn. Its reader verifies hashes anyway, and drops such a file.
type Disk struct {
	root  string
	limit int64

	mutex   sync.Mutex
	used    int64
	order   *list.List
	entries map[string]*list.Element
}

type diskEntry struct {
	name string
	size int64
}

// OpenDisk opens a directory that no other process uses. Files of an earlier process stay, up to the limit.
func OpenDisk(root string, limitBytes int64) (*Disk, error) {
	if err := os.MkdirAll(root, 0o700); err != nil {
		return nil, fmt.Errorf("opening the cache: %w", err)
	}
	disk := &Disk{root: root, limit: limitBytes, order: list.New(), entries: map[string]*list.Element{}}
	directory, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("opening the cache: %w", err)
	}
	var infos []os.FileInfo
	for _, entry := range directory {
		info, err := entry.Info()
		if err != nil || strings.HasPrefix(entry.Name(), unfinishedPrefix) || !info.Mode().IsRegular() {
			_ = os.Remove(filepath.Join(root, entry.Name()))
			continue
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b os.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		disk.enter(info.Name(), info.Size())
	}
	return disk, nil
}

// Read reads a part of a file. It returns nil if the file is absent or shorter.
func (d *Disk) Read(name string, offset, length int64) []byte {
	d.mutex.Lock()
	element, ok := d.entries[name]
	if ok {
		d.order.MoveToFront(element)
	}
	d.mutex.Unlock()
	if !ok {
		return nil
	}
	file, err := os.Open(filepath.Join(d.root, name))
	if err != nil {
		return nil
	}
	defer file.Close()
	content := make([]byte, length)
	if n, _ := file.ReadAt(content, offset); int64(n) < length {
		return nil
	}
	return content
}

// ReadAll reads a whole file. It returns nil if the file is absent.
func (d *Disk) ReadAll(name string) []byte {
	d.mutex.Lock()
	element, ok := d.entries[name]
	var size int64
	if ok {
		size = element.Value.(*diskEntry).size
	}
	d.mutex.Unlock()
	if !ok {
		return nil
	}
	return d.Read(name, 0, size)
}

// Put keeps a file and drops others. A failure only means that it is not kept.
func (d *Disk) Put(name string, content []byte) {
	if int64(len(content))+fileOverhead > d.limit {
		return
	}
	file, err := os.CreateTemp(d.root, unfinishedPrefix)
	if err != nil {
		return
	}
	_, err = file.Write(content)
	if closeErr := file.Close(); err != nil || closeErr != nil {
		_ = os.Remove(file.Name())
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if os.Rename(file.Name(), filepath.Join(d.root, name)) != nil {
		_ = os.Remove(file.Name())
		return
	}
	d.enterLocked(name, int64(len(content)))
}

// Drop removes a file that is found to be wrong.
func (d *Disk) Drop(name string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if element, ok := d.entries[name]; ok {
		d.remove(element)
	}
}

// UsedBytes is the size of all files.
func (d *Disk) UsedBytes() int64 {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.used
}

func (d *Disk) enter(name string, size int64) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.enterLocked(name, size)
}

func (d *Disk) enterLocked(name string, size int64) {
	if element, exists := d.entries[name]; exists {
		d.order.Remove(element)
		d.used -= element.Value.(*diskEntry).size + fileOverhead
	}
	d.entries[name] = d.order.PushFront(&diskEntry{name, size})
	for d.used += size + fileOverhead; d.used > d.limit; {
		d.remove(d.order.Back())
	}
}

func (d *Disk) remove(element *list.Element) {
	entry := d.order.Remove(element).(*diskEntry)
	delete(d.entries, entry.name)
	d.used -= entry.size + fileOverhead
	_ = os.Remove(filepath.Join(d.root, entry.name))
}
