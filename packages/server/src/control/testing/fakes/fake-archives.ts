/** Archives of directories of the fake runner's guests; they stay packed. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { answer, readAll } from './fake-answers.ts';

export class FakeArchives {
  readonly contents = new Map<string, Buffer>();
  /** Queries of all uploads, newest last. */
  readonly uploads: URLSearchParams[] = [];
  /** Called when an archive has arrived; may throw the error to answer instead. */
  onUnpack: () => void = () => undefined;
  /** Sends the archive; may break it off. */
  onSend: (stream: ServerHttp2Stream, content: Buffer) => void = (stream, content) => stream.end(content);

  /** Returns whether the request was about an archive. */
  async take(stream: ServerHttp2Stream, action: string, query: URLSearchParams): Promise<boolean> {
    if (!action.endsWith(' /agent/files/archive')) return false;
    const path = query.get('path') ?? '';
    if (action.startsWith('GET ')) {
      const content = this.contents.get(path);
      if (content === undefined) throw new AppError('file_not_found', `cannot open ${path} (ENOENT)`);
      stream.respond({ ':status': 200, 'content-type': 'text/html' });
      this.onSend(stream, content);
      return true;
    }
    this.uploads.push(query);
    const content = await readAll(stream);
    this.onUnpack();
    this.contents.set(path, content);
    answer(stream, 200, { path, entries: 2, size: content.length });
    return true;
  }
}
