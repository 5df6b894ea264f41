/** Watches of files of the fake runner's guests. */
import type { ServerHttp2Stream } from 'node:http2';

export class FakeFileWatches {
  /** Open streams, newest last. */
  readonly open: ServerHttp2Stream[] = [];
  readonly queries: URLSearchParams[] = [];
  /** Called when a watch begins. By default its directory is gone at once. */
  onWatch: (stream: ServerHttp2Stream) => void = (stream) => {
    stream.end('{"type":"ended","path":"/"}\n');
  };

  /** Returns whether the request was a watch. */
  take(stream: ServerHttp2Stream, action: string, query: URLSearchParams): boolean {
    if (action !== 'GET /agent/files/watch') return false;
    this.queries.push(query);
    this.open.push(stream);
    stream.once('close', () => this.open.splice(this.open.indexOf(stream), 1));
    stream.respond({ ':status': 200 });
    this.onWatch(stream);
    return true;
  }
}
