/**
 * Uploads, for as long as the page is open: they continue while the reader looks at something else. The files of one drop
 * are a batch.
 */
import { computed, signal, type Signal } from '@preact/signals';
import type { Sandbox } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import type { ChosenFile } from './dropped-files.ts';
import { joinPath } from './paths.ts';
import { sendByLink } from './send-by-link.ts';

interface BatchProgress {
  doneBytes: number;
  doneFiles: number;
  /** The file that began last. */
  currentName: string;
  failures: readonly { path: string; why: string }[];
  state: 'running' | 'ended' | 'cancelled';
}

export interface Batch {
  id: number;
  sandboxId: string;
  directory: string;
  totalFiles: number;
  totalBytes: number;
  progress: Signal<BatchProgress>;
  cancel: () => void;
}

/** Browsers have six connections for an origin, of which other parts of the page use some. */
const PARALLEL = 2;
/** Larger files are sent by a link, with which the browser reports its progress. */
const DIRECT_BYTES = 256 * 1024;

export const batches = signal<readonly Batch[]>([]);
const isUploading = computed(() => batches.value.some(({ progress }) => progress.value.state === 'running'));

addEventListener('beforeunload', (event) => {
  if (isUploading.value) event.preventDefault();
});

let lastId = 0;

/** Begins to upload files into a directory, in place of those of the same name. */
export function startUpload(sandbox: Sandbox, directory: string, files: readonly ChosenFile[]): Batch {
  const end = new AbortController();
  lastId += 1;
  const batch: Batch = {
    id: lastId,
    sandboxId: sandbox.record.id,
    directory,
    totalFiles: files.length,
    totalBytes: files.reduce((sum, { file }) => sum + file.size, 0),
    progress: signal({ doneBytes: 0, doneFiles: 0, currentName: '', failures: [], state: 'running' }),
    cancel: () => end.abort(),
  };
  batches.value = [...batches.value, batch];
  void run(batch, { sandbox, files, signal: end.signal });
  return batch;
}

export function dismissBatch(id: number): void {
  batches.value = batches.value.filter((batch) => batch.id !== id);
}

interface Work {
  sandbox: Sandbox;
  files: readonly ChosenFile[];
  signal: AbortSignal;
}

async function run(batch: Batch, { sandbox, files, signal: end }: Work): Promise<void> {
  const { progress } = batch;
  const queue = files.values();
  const change = (changes: Partial<BatchProgress>): void => {
    progress.value = { ...progress.value, ...changes };
  };
  const work = async (): Promise<void> => {
    for (const { file, path } of queue) {
      if (end.aborted) return;
      change({ currentName: path });
      let sent = 0;
      const note = (bytes: number): void => {
        change({ doneBytes: progress.value.doneBytes + bytes - sent });
        sent = bytes;
      };
      try {
        await send(sandbox, { file, path: joinPath(batch.directory, path), signal: end, note });
      } catch (error) {
        if (end.aborted) return;
        change({ failures: [...progress.value.failures, { path, why: explain(error) }] });
      }
      note(file.size);
      change({ doneFiles: progress.value.doneFiles + 1 });
    }
  };
  await Promise.all(Array.from({ length: PARALLEL }, work));
  change({ state: end.aborted ? 'cancelled' : 'ended' });
  if (progress.value.failures.length === 0) dismissBatch(batch.id);
}

interface Sending {
  file: File;
  path: string;
  signal: AbortSignal;
  note: (sentBytes: number) => void;
}

async function send(sandbox: Sandbox, { file, path, signal: end, note }: Sending): Promise<void> {
  if (file.size <= DIRECT_BYTES) {
    await sandbox.upload(path, file, { signal: end });
    return;
  }
  const { url } = await sandbox.files.createLink(path, { method: 'upload', expiresIn: 3600, signal: end });
  await sendByLink(url, { file, signal: end, note });
}
