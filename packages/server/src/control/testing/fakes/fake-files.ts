/** The files of the fake runner's guests: all VMs share them. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { answer } from './fake-answers.ts';
import { FakeArchives } from './fake-archives.ts';
import { FakeFileChanges } from './fake-file-changes.ts';
import { FakeFileWatches } from './fake-file-watches.ts';

export interface Upload {
  path: string;
  mode: string | null;
  user: string | null;
  /** Empty until the upload is complete. */
  content: Buffer;
  receivedBytes: number;
  /** Whether the stream was reset before its end: then nothing may be stored. */
  isBroken: boolean;
}

export class FakeFiles {
  readonly contents = new Map<string, Buffer>();
  readonly changes = new FakeFileChanges(this.contents);
  readonly archives = new FakeArchives();
  readonly watches = new FakeFileWatches();
  readonly uploads: Upload[] = [];
  /** Called for each chunk of an upload; may throw the error to answer instead. */
  onUpload: () => void = () => undefined;
  /** Overrides the path in the answers to uploads. */
  answeredPath: string | undefined;
  /** Answers a download as an agent with odd behaviour would. Returns true if it did. */
  onDownload: (stream: ServerHttp2Stream, path: string) => boolean = () => false;
  /** Header `coppice-next` of lists. */
  nextCursor: string | undefined;
  /** Queries of lists. */
  readonly lists: URLSearchParams[] = [];

  async upload(stream: ServerHttp2Stream, query: URLSearchParams): Promise<void> {
    const chunks: Buffer[] = [];
    const path = query.get('path') ?? '';
    const upload: Upload = {
      path,
      mode: query.get('mode'),
      user: query.get('user'),
      content: Buffer.alloc(0),
      receivedBytes: 0,
      isBroken: true,
    };
    this.uploads.push(upload);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    stream.on('data', (chunk: Buffer) => {
      chunks.push(chunk);
      upload.receivedBytes += chunk.length;
      try {
        this.onUpload();
      } catch (error) {
        reject(error);
      }
    });
    stream.once('end', resolve).once('close', resolve);
    await promise;
    if (stream.aborted || stream.rstCode !== 0) return;
    upload.isBroken = false;
    upload.content = Buffer.concat(chunks);
    this.contents.set(path, upload.content);
    answer(stream, 200, { path: this.answeredPath ?? path, size: upload.content.length });
  }

  download(stream: ServerHttp2Stream, path: string, range: string | undefined): void {
    if (this.onDownload(stream, path)) return;
    const content = this.contents.get(path);
    if (content === undefined) throw new AppError('file_not_found', `${path}: no such file`);
    const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '') ?? [];
    const start = from === undefined ? 0 : Number(from);
    const end = to === undefined ? content.length : Number(to) + 1;
    if (start >= content.length && content.length > 0)
      throw new AppError('range_not_satisfiable', 'beyond the end');
    const part = content.subarray(start, end);
    stream.respond({
      ':status': from === undefined ? 200 : 206,
      'content-length': part.length,
      ...(from === undefined ? {} : { 'content-range': `bytes ${start}-${end - 1}/${content.length}` }),
    });
    stream.end(part);
  }

  list(stream: ServerHttp2Stream, query: URLSearchParams): void {
    this.lists.push(query);
    const mtime = '2026-11-21T06:30:00.000Z';
    const entries = [...this.contents].map(([path, content]) => {
      return { name: path.split('/').at(-1), path, type: 'file', size: content.length, mode: '0644', mtime };
    });
    stream.respond({
      ':status': 200,
      ...(this.nextCursor === undefined ? {} : { 'coppice-next': this.nextCursor }),
    });
    stream.end(JSON.stringify(entries));
  }
}
