package cache

import (
	"container/list"
	"sync"
)

// Memory keeps the values used last, up to a number of bytes.
type Memory[K comparable, V any] struct {
	limit int64

	mutex   sync.Mutex
	used    int64
	order   *list.List
	entries map[K]*list.Element
}

type memoryEntry[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

// NewMemory returns an empty cache.
func NewMemory[K comparable, V any](limitBytes int64) *Memory[K, V] {
	return &Memory[K, V]{limit: limitBytes, order: list.New(), entries: map[K]*list.Element{}}
}

// Find returns a value. The caller must not change it.
func (m *Memory[K, V]) Find(key K) (value V, ok bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	element, ok := m.entries[key]
	if !ok {
		return value, false
	}
	m.order.MoveToFront(element)
	return element.Value.(*memoryEntry[K, V]).value, true
}

// Drop removes a value.
func (m *Memory[K, V]) Drop(key K) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if element, ok := m.entries[key]; ok {
		m.used -= m.order.Remove(element).(*memoryEntry[K, V]).size
		delete(m.entries, key)
	}
}

// Add keeps a value of size bytes, and drops others.
func (m *Memory[K, V]) Add(key K, value V, size int64) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if _, exists := m.entries[key]; exists || size > m.limit {
		return
	}
	m.entries[key] = m.order.PushFront(&memoryEntry[K, V]{key, value, size})
	for m.used += size; m.used > m.limit; {
		oldest := m.order.Remove(m.order.Back()).(*memoryEntry[K, V])
		delete(m.entries, oldest.key)
		m.used -= oldest.size
	}
}
