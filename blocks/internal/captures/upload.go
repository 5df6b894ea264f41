package captures

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"os"
	"slices"
	"sync"

	"coppice/blocks/internal/record"
)

// uploadWorkers bound the memory of an upload, about 2 MiB each, and its requests at a time.
const uploadWorkers = 8

// Job is a capture to store.
type Job struct {
	Org, Capture string
	// About is kept for the runner.
	About string
	Files []Source
}

// Source is a file of a capture. Nothing may write to it.
type Source struct {
	Name string
	File *os.File
}

// Stored is what an upload did.
type Stored struct {
	// IsRepeated is set if the capture was stored before.
	IsRepeated bool `json:"repeated"`
	// StoredBytes are those of all chunks of the capture; SentBytes of those that the store did not have.
	StoredBytes int64 `json:"stored_bytes"`
	SentBytes   int64 `json:"sent_bytes"`
	SentChunks  int   `json:"sent_chunks"`
}

// announcement says that an upload runs which can only end by creating one manifest.
type announcement struct {
	TimeMS int64 `json:"time_ms"`
	// Seen is the newest mark before the announcement. The upload names no chunk of this mark or an earlier one.
	Seen int64 `json:"seen"`
}

type upload struct {
	*Captures
	job       Job
	tag       string
	condemned map[string]bool

	mutex sync.Mutex
	// chunks are the distinct ones, by content.
	chunks map[Sum]object
	sums   []map[int64]Sum
	result Stored
}

type object struct {
	name  string
	bytes int64
}

// Upload stores a capture, unless it is stored. It ends earlier uploads of the capture, which were killed. Its order makes the collector safe (see there): the announcement, then
// the newest mark, then the search for chunks that exist, then the manifest.
func (c *Captures) Upload(ctx context.Context, job Job) (Stored, error) {
	if err := c.endUploads(ctx, job.Org, job.Capture); err != nil {
		return Stored{}, err
	}
	found, err := c.Find(ctx, job.Org, job.Capture)
	if err == nil {
		return Stored{IsRepeated: true, StoredBytes: found.StoredBytes}, nil
	}
	if !errors.Is(err, ErrNoCapture) {
		return Stored{}, err
	}
	u := &upload{Captures: c, job: job, tag: newTag(), chunks: map[Sum]object{}}
	if err := u.announce(ctx); err != nil {
		return Stored{}, err
	}
	manifest, err := u.send(ctx)
	if err == nil {
		err = u.commit(ctx, manifest)
	}
	if err != nil && !errors.Is(err, ErrConflict) {
		// The manifest may exist, or may be about to. The next upload or the collector ends the announcement.
		return Stored{}, err
	}
	return u.result, errors.Join(err, c.Store.Delete(ctx, uploadKey(job.Org, job.Capture, u.tag)))
}

func (u *upload) announce(ctx context.Context) error {
	seen, _, err := u.newestMark(ctx, u.job.Org)
	if err != nil {
		return err
	}
	key := uploadKey(u.job.Org, u.job.Capture, u.tag)
	body, err := record.Encode(key, announcement{TimeMS: u.Now().UnixMilli(), Seen: seen})
	if err != nil {
		return err
	}
	if _, err := u.Store.PutIfAbsent(ctx, key, body); err != nil {
		return err
	}
	_, newest, err := u.newestMark(ctx, u.job.Org)
	u.condemned = newest.condemned()
	return err
}

// send makes all chunks exist.
func (u *upload) send(ctx context.Context) (Manifest, error) {
	manifest := Manifest{Kind: kindCapture, TimeMS: u.Now().UnixMilli(), About: u.job.About}
	for _, source := range u.job.Files {
		info, err := source.File.Stat()
		if err != nil {
			return manifest, fmt.Errorf("reading %s: %w", source.Name, err)
		}
		manifest.Files = append(manifest.Files, File{Name: source.Name, SizeBytes: info.Size(), Chunks: []Chunk{}})
		u.sums = append(u.sums, map[int64]Sum{})
	}
	err := inParallel(ctx, uploadWorkers, u.places(manifest.Files), func(ctx context.Context, at place, memory *buffers) error {
		content := memory.content[:manifest.Files[at.file].lengthAt(at.index)]
		if err := u.sendChunk(ctx, at, content, memory); err != nil {
			return fmt.Errorf("storing %s: %w", u.job.Files[at.file].Name, err)
		}
		return nil
	})
	if err != nil {
		return manifest, err
	}
	for number := range manifest.Files {
		manifest.Files[number].Chunks = u.listChunks(number)
	}
	for _, each := range u.chunks {
		manifest.StoredBytes += each.bytes
	}
	u.result.StoredBytes = manifest.StoredBytes
	return manifest, nil
}

func (u *upload) places(files []File) iter.Seq2[place, error] {
	return func(yield func(place, error) bool) {
		for number, source := range u.job.Files {
			for index, err := range dataChunks(source.File, files[number].SizeBytes) {
				if !yield(place{file: number, index: index}, err) {
					return
				}
			}
		}
	}
}

func (u *upload) sendChunk(ctx context.Context, at place, content []byte, memory *buffers) error {
	if err := readChunk(u.job.Files[at.file].File, content, at.index); err != nil {
		return err
	}
	if isZero(content) {
		return nil
	}
	sum := Sum(sha256.Sum256(content))
	if !u.claim(at, sum) {
		return nil
	}
	found, err := u.find(ctx, sum)
	if err != nil {
		return err
	}
	if found.name != "" {
		u.note(sum, found, false)
		return nil
	}
	memory.object = encodeChunk(content, memory.object)
	sent := object{name: sum.String() + "." + u.tag, bytes: int64(len(memory.object))}
	if _, err := u.Store.PutIfAbsent(ctx, chunkKey(u.job.Org, sent.name), memory.object); err != nil {
		return err
	}
	u.note(sum, sent, true)
	return nil
}

// claim notes the content of a place, and returns true for the first place with this content.
func (u *upload) claim(at place, sum Sum) bool {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.sums[at.file][at.index] = sum
	_, isKnown := u.chunks[sum]
	if !isKnown {
		u.chunks[sum] = object{}
	}
	return !isKnown
}

func (u *upload) note(sum Sum, found object, isSent bool) {
	u.mutex.Lock()
	defer u.mutex.Unlock()
	u.chunks[sum] = found
	if isSent {
		u.result.SentBytes += found.bytes
		u.result.SentChunks++
	}
}

// find returns an object with the content that is not condemned. It has no name if there is none.
func (u *upload) find(ctx context.Context, sum Sum) (object, error) {
	prefix := chunkKey(u.job.Org, sum.String()+".")
	for info, err := range u.Store.List(ctx, prefix, "") {
		if err != nil {
			return object{}, err
		}
		name := info.Key[len(prefix)-len(sum.String())-1:]
		if _, err := parseName(name); err == nil && !u.condemned[name] {
			return object{name: name, bytes: info.Size}, nil
		}
	}
	return object{}, nil
}

func (u *upload) listChunks(file int) []Chunk {
	chunks := make([]Chunk, 0, len(u.sums[file]))
	for index, sum := range u.sums[file] {
		chunks = append(chunks, Chunk{Index: index, Name: u.chunks[sum].name})
	}
	slices.SortFunc(chunks, func(a, b Chunk) int { return int(a.Index - b.Index) })
	return chunks
}

func (u *upload) commit(ctx context.Context, manifest Manifest) error {
	key := manifestKey(u.job.Org, u.job.Capture, u.tag)
	body, err := record.Encode(key, manifest)
	if err != nil {
		return err
	}
	isWritten, err := u.Store.PutIfAbsent(ctx, key, body)
	if err == nil && !isWritten {
		err = fmt.Errorf("%w: %s", ErrConflict, u.job.Capture)
	}
	return err
}
