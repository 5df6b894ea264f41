/** Changes of the files of the fake runner's guests, without users and modes of their own. */
import type { ServerHttp2Stream } from 'node:http2';
import { AppError } from '@coppice/contract';
import { answer, readAll } from './fake-answers.ts';

export interface FileChange {
  /** Last part of the agent's path, for example `mkdir`. */
  route: string;
  body: Record<string, unknown>;
}

export class FakeFileChanges {
  readonly #contents: Map<string, Buffer>;
  readonly directories = new Set<string>();
  /** All requested changes, newest last. */
  readonly asked: FileChange[] = [];
  /** Called before each change; may throw the error to answer instead. */
  onChange: (change: FileChange) => void = () => undefined;

  constructor(contents: Map<string, Buffer>) {
    this.#contents = contents;
  }

  /** Returns whether the request was one of these. */
  async take(stream: ServerHttp2Stream, action: string, query: URLSearchParams): Promise<boolean> {
    if (action === 'GET /agent/files/stat') {
      answer(stream, 200, this.#describe(query.get('path') ?? ''));
      return true;
    }
    const [, route] = /^POST \/agent\/files\/(mkdir|move|remove|chmod|chown)$/.exec(action) ?? [];
    if (route === undefined) return false;
    const body = JSON.parse((await readAll(stream)).toString('utf8')) as FileChange['body'];
    this.asked.push({ route, body });
    this.onChange({ route, body });
    answer(stream, 200, this.#change({ route, body }));
    return true;
  }

  #change({ route, body }: FileChange): unknown {
    const { path, from, to } = body as { path: string; from: string; to: string };
    if (route === 'mkdir') {
      if (this.directories.has(path) && body['parents'] !== true) throw taken('path', path);
      this.directories.add(path);
    } else if (route === 'move') {
      const content = this.#get(from);
      if (this.#contents.has(to) && body['overwrite'] !== true) throw taken('to', to);
      this.#contents.delete(from);
      this.#contents.set(to, content);
      return this.#describe(to);
    } else if (route === 'remove') {
      if (!this.#contents.delete(path) && !this.directories.delete(path)) throw missing(path);
      return {};
    }
    return this.#describe(path);
  }

  #get(path: string): Buffer {
    const content = this.#contents.get(path);
    if (content === undefined) throw missing(path);
    return content;
  }

  #describe(path: string): unknown {
    const isDirectory = this.directories.has(path);
    const size = isDirectory ? 4096 : this.#get(path).length;
    const name = path.split('/').at(-1);
    const times = { mtime: '2026-11-21T06:30:00.000Z' };
    const owner = { uid: 0, gid: 0, user: 'root', group: 'root' };
    return { name, path, type: isDirectory ? 'dir' : 'file', size, mode: '0644', ...times, ...owner };
  }
}

function missing(path: string): AppError {
  return new AppError('file_not_found', `cannot find ${path}: no such file or directory (ENOENT)`);
}

function taken(field: string, path: string): AppError {
  return new AppError('already_exists', `${field}: ${path} exists already`);
}
