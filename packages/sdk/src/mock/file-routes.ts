/** Files of the mocked sandboxes: uploads, downloads and lists of absolute paths. There are no links, users or limits. */
import { AppError, FilePathQuery, ListFilesQuery, UploadQuery, type FileEntry } from '@coppice/contract';
import { requireAllowed, type MockSandbox } from './mock-state.ts';
import { answerJson, answerPage, parseQuery, type MockRequest } from './mock-request.ts';
import { refuse } from './refusal.ts';

const DIRECTORY_MODE = '0755';
const FILE_MODE = '0644';

export function uploadFile(request: MockRequest): Response {
  const sandbox = request.state.getSandbox(request.ids[0] ?? '');
  const query = parseQuery(request, UploadQuery);
  requireAllowed(sandbox, 'use');
  const path = toAbsolute(query.path);
  if (isDirectory(sandbox, path)) throw new AppError('file_error', `${path}: is a directory (EISDIR)`);
  const mode = query.mode?.padStart(4, '0') ?? sandbox.files.get(path)?.mode ?? FILE_MODE;
  sandbox.files.set(path, { bytes: request.body, mode, mtime: new Date().toISOString() });
  return answerJson(200, { path, size: request.body.length });
}

export function downloadFile(request: MockRequest): Response {
  const sandbox = request.state.getSandbox(request.ids[0] ?? '');
  const path = toAbsolute(parseQuery(request, FilePathQuery).path);
  requireAllowed(sandbox, 'use');
  const file = sandbox.files.get(path);
  if (file !== undefined) return new Response(file.bytes, { status: 200 });
  if (isDirectory(sandbox, path)) throw new AppError('file_error', `${path}: is a directory (EISDIR)`);
  throw new AppError('file_not_found', `${path}: no such file`);
}

export function listFiles(request: MockRequest): Response {
  const sandbox = request.state.getSandbox(request.ids[0] ?? '');
  const { path: given, limit, cursor } = parseQuery(request, ListFilesQuery);
  requireAllowed(sandbox, 'use');
  const path = toAbsolute(given);
  if (!isDirectory(sandbox, path)) throw new AppError('file_not_found', `${path}: no such directory`);
  return answerPage(request, listEntries(sandbox, path), { limit, cursor });
}

/** Directories exist while a file is below them. */
function listEntries({ files }: MockSandbox, directory: string): FileEntry[] {
  const start = directory === '/' ? '/' : `${directory}/`;
  const entries = new Map<string, FileEntry>();
  for (const [path, { bytes, mode, mtime }] of files) {
    if (!path.startsWith(start)) continue;
    const [name = '', ...below] = path.slice(start.length).split('/');
    const entry = { name, path: `${start}${name}`, mtime };
    if (below.length > 0) entries.set(name, { ...entry, type: 'dir', size: 0, mode: DIRECTORY_MODE });
    else entries.set(name, { ...entry, type: 'file', size: bytes.length, mode });
  }
  return [...entries.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

function isDirectory(sandbox: MockSandbox, path: string): boolean {
  return path === '/' || path === '/workspace' || listEntries(sandbox, path).length > 0;
}

/** Returns the path without `.`, `..` and double slashes. A relative one needs the directory of an image. */
function toAbsolute(path: string): string {
  if (!path.startsWith('/')) throw refuse('relative paths of files');
  const parts: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') parts.pop();
    else if (part !== '' && part !== '.') parts.push(part);
  }
  return `/${parts.join('/')}`;
}
