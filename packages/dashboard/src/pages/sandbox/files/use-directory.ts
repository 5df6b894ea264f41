import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { CoppiceError, type FileEntry, type Sandbox } from '../../../../../sdk/src/index.ts';
import { useResource, type Resource } from '../../../service/resource.ts';

export interface Directory {
  /** Absolute. */
  path: string;
  entries: readonly FileEntry[];
}

/** Changes within this time are shown by one reading. */
const GATHER_MS = 1000;
const RETRY_MS = 3000;

/** Reads a directory of the sandbox. Without a path it is the one in which commands start. */
export function useDirectory(sandbox: Sandbox, path: string | undefined): Resource<Directory> {
  return useResource<Directory>(
    async (signal) => {
      const absolute = path ?? (await sandbox.files.stat('./', { signal })).path;
      return { path: absolute, entries: await sandbox.listFiles(absolute, { signal }) };
    },
    [sandbox.record.id, path],
  );
}

/**
 * Calls `reload` when something changes in a directory. Only while the page is in view: an open watch keeps the sandbox
 * from being idle, and takes one of the browser's connections. Returns whether changes are followed now.
 */
export function useWatch(
  sandbox: Sandbox,
  path: string | undefined,
  { isWanted, reload }: { isWanted: boolean; reload: () => void },
): boolean {
  const isFollowing = useSignal(false);
  const isInView = useInView();
  const latest = useRef({ sandbox, reload });
  latest.current = { sandbox, reload };
  useEffect(() => {
    if (path === undefined || !isWanted || !isInView) return undefined;
    const end = new AbortController();
    void follow(path, end.signal);
    return () => {
      end.abort();
      isFollowing.value = false;
    };
  }, [sandbox.record.id, path, isWanted, isInView]);

  async function follow(directory: string, signal: AbortSignal): Promise<void> {
    let isRetry = false;
    while (!signal.aborted) {
      try {
        const changes = await latest.current.sandbox.files.watch(directory, { signal });
        isFollowing.value = true;
        if (isRetry) latest.current.reload();
        let timer: ReturnType<typeof setTimeout> | undefined;
        for await (const _ of changes) {
          timer ??= setTimeout(() => {
            timer = undefined;
            if (!signal.aborted) latest.current.reload();
          }, GATHER_MS);
        }
        // The directory is gone, which the reading shows.
        isFollowing.value = false;
        return latest.current.reload();
      } catch (error) {
        if (signal.aborted) return;
        isFollowing.value = false;
        if (!isLostConnection(error)) return console.debug(error);
        isRetry = true;
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }
  return isFollowing.value;
}

function isLostConnection(error: unknown): boolean {
  return error instanceof CoppiceError && (error.code === 'connection_failed' || error.status >= 500);
}

function useInView(): boolean {
  const isInView = useSignal(document.visibilityState === 'visible');
  useEffect(() => {
    const note = (): void => {
      isInView.value = document.visibilityState === 'visible';
    };
    document.addEventListener('visibilitychange', note);
    return () => document.removeEventListener('visibilitychange', note);
  }, []);
  return isInView.value;
}
