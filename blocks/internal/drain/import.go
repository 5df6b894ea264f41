package drain

import (
	"context"
	"errors"
	"fmt"
	"os"

	"coppice/blocks/internal/blockmap"
	"coppice/blocks/internal/chain"
	"coppice/blocks/internal/qcow2"
	"coppice/blocks/internal/segment"
)

// Formats of images.
const (
	FormatRaw   = "raw"
	FormatQcow2 = "qcow2"
)

const remedy = "convert it with: qemu-img convert -O qcow2 <image> <new image>"

var (
	// ErrImage says that an image cannot be imported.
	ErrImage = errors.New("the image cannot be imported")
	// ErrTooLarge says that the disk of an image would be larger than allowed.
	ErrTooLarge = errors.New("the image is too large")
)

// Image is what callers send. Nothing in it can be trusted.
type Image struct {
	Format string
	File   *os.File
	// MaxBytes limits the size of the disk, which the header of a qcow2 file states. 0 is no limit.
	MaxBytes int64
	// FileSystem is what the image must contain: FileSystemExt4, or empty for any content.
	FileSystem string
}

// Import makes a disk with the content of an image. Its size is that of the image, if the job has none, and a multiple of
// a page; what the image lacks reads as zeroes. A repeated call completes an interrupted one, or returns its version.
func Import(ctx context.Context, disks *chain.Disks, source *blockmap.Source, job chain.Import, from Image) (Result, error) {
	image, err := openContent(from.Format, from.File)
	if err != nil {
		return Result{}, err
	}
	if err := checkContent(image, from); err != nil {
		return Result{}, err
	}
	size := image.size
	if job.SizeBytes > 0 {
		size = job.SizeBytes
	}
	job.SizeBytes = roundUp(size)
	if image.size > job.SizeBytes {
		return Result{}, fmt.Errorf("%w: it has %d bytes, the disk %d", ErrImage, image.size, size)
	}
	for try := 1; ; try++ {
		result, err := importOnce(ctx, disks, source, job, image)
		if !errors.Is(err, chain.ErrConflict) || try == conflictTries {
			return result, err
		}
	}
}

func importOnce(ctx context.Context, disks *chain.Disks, source *blockmap.Source, job chain.Import, image content) (Result, error) {
	upload, done, err := disks.BeginImport(ctx, job)
	if err != nil || upload == nil {
		return Result{Version: done, IsRepeated: err == nil}, err
	}
	root, stats, err := build(ctx, source, job.Org, upload, image.fill)
	if err != nil {
		return Result{}, errors.Join(err, upload.Abort(context.WithoutCancel(ctx)))
	}
	version, err := job.Commit(ctx, upload, root)
	return Result{Version: version, Stats: stats}, err
}

// content is an image, of which fill adds what is not zero. readAt reads a part within one page.
type content struct {
	size   int64
	fill   func(context.Context, *blockmap.Builder) error
	readAt func(content []byte, at int64) error
}

// checkContent checks what the caller asks of the image before anything is made.
func checkContent(image content, asked Image) error {
	if asked.MaxBytes > 0 && image.size > asked.MaxBytes {
		return fmt.Errorf("%w: its disk has %d bytes, at most %d are allowed", ErrTooLarge, image.size, asked.MaxBytes)
	}
	switch asked.FileSystem {
	case "":
		return nil
	case FileSystemExt4:
		return checkExt4(image)
	default:
		return fmt.Errorf("%w: its file system is %.20q; must be %s", ErrImage, asked.FileSystem, FileSystemExt4)
	}
}

func openContent(format string, file *os.File) (content, error) {
	info, err := file.Stat()
	if err != nil {
		return content{}, fmt.Errorf("reading the image: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return content{}, fmt.Errorf("%w: it is no file, or empty", ErrImage)
	}
	switch format {
	case FormatRaw:
		fill := func(ctx context.Context, builder *blockmap.Builder) error {
			return fillRaw(ctx, builder, file, info.Size())
		}
		return content{info.Size(), fill, func(part []byte, at int64) error {
			_, err := file.ReadAt(part, at)
			return err
		}}, nil
	case FormatQcow2:
		image, err := qcow2.Open(file, info.Size())
		if err == nil {
			err = checkImage(image)
		}
		if err != nil {
			return content{}, fmt.Errorf("%w; %s", err, remedy)
		}
		fill := func(ctx context.Context, builder *blockmap.Builder) error {
			return fillQcow2(ctx, builder, image)
		}
		return content{image.Size(), fill, func(part []byte, at int64) error {
			return readQcow2(image, part, at)
		}}, nil
	default:
		return content{}, fmt.Errorf("%w: its format is %.20q; must be %s or %s", ErrImage, format, FormatRaw, FormatQcow2)
	}
}

// checkImage reads all tables, so that an image that is refused makes no disk.
func checkImage(image *qcow2.Image) error {
	if image.Granularity() < segment.PageBytes {
		return fmt.Errorf("%w: clusters of %d bytes", qcow2.ErrRefused, image.Granularity())
	}
	for _, err := range image.Extents() {
		if err != nil {
			return err
		}
	}
	return nil
}

func fillQcow2(ctx context.Context, builder *blockmap.Builder, image *qcow2.Image) error {
	for extent, err := range image.Extents() {
		if err != nil {
			return err
		}
		if extent.IsZero {
			continue
		}
		read := func(content []byte, at int64) error {
			stored := min(int64(len(content)), extent.Length-at)
			clear(content[stored:])
			return image.ReadAt(content[:stored], extent, at)
		}
		// Only the last extent may end within a page.
		change := blockmap.Change{Offset: extent.Offset, Length: roundUp(extent.Length), Read: read}
		if err := builder.Apply(ctx, change); err != nil {
			return err
		}
	}
	return nil
}

// readQcow2 reads a part within one page. No extent begins or ends within a page, except at the end of the disk.
func readQcow2(image *qcow2.Image, part []byte, at int64) error {
	clear(part)
	for extent, err := range image.Extents() {
		if err != nil || extent.Offset > at {
			return err
		}
		if at < extent.Offset+extent.Length && !extent.IsZero {
			return image.ReadAt(part, extent, at-extent.Offset)
		}
	}
	return nil
}

func roundUp(bytes int64) int64 {
	return (bytes + segment.PageBytes - 1) / segment.PageBytes * segment.PageBytes
}
