/** Something that a part of the page reads from the service, and reads again when an event concerns it. */
import { useComputed, useSignal, type ReadonlySignal } from '@preact/signals';
import { useCallback, useEffect, useRef } from 'preact/hooks';
import type { EventInfo } from '../../../sdk/src/index.ts';
import { onEvents } from './live-events.ts';

export interface Resource<Value> {
  /** The last value that was read; it stays while the next one is read, so that nothing flickers. */
  value: Value | undefined;
  /** Why the last reading failed. */
  error: unknown;
  isLoading: boolean;
  /** Reads again now. */
  reload: () => void;
  /** Replaces the value, with the answer of a change. */
  set: (value: Value) => void;
}

interface Options {
  /** Says which events change the value. Without it, none does. */
  concerns?: ((event: EventInfo) => boolean) | undefined;
}

/** Many events at once need one reading. */
const GATHER_MS = 250;

/**
 * Reads `read` at once and whenever one of `inputs` changes, which also clears the value. An answer that arrives after a
 * later reading has begun is dropped.
 */
export function useResource<Value>(
  read: (signal: AbortSignal) => Promise<Value>,
  inputs: readonly unknown[],
  { concerns }: Options = {},
): Resource<Value> {
  const value = useSignal<Value | undefined>(undefined);
  const error = useSignal<unknown>(undefined);
  const isLoading = useSignal(true);
  const reading = useRef<AbortController | undefined>(undefined);
  const latest = useRef({ read, concerns });
  latest.current = { read, concerns };
  const reload = useCallback(() => {
    reading.current?.abort();
    const own = new AbortController();
    reading.current = own;
    isLoading.value = true;
    latest.current.read(own.signal).then(
      (answer) => settle(own, () => ((value.value = answer), (error.value = undefined))),
      (fault: unknown) => settle(own, () => (error.value = fault)),
    );
    function settle(of: AbortController, change: () => void): void {
      if (reading.current !== of || of.signal.aborted) return;
      isLoading.value = false;
      change();
    }
  }, []);
  useEffect(() => {
    value.value = undefined;
    error.value = undefined;
    reload();
    return () => reading.current?.abort();
  }, inputs);
  useEventReload(latest, reload);
  return {
    value: value.value,
    error: error.value,
    isLoading: isLoading.value,
    reload,
    set: (next) => (value.value = next),
  };
}

function useEventReload(latest: { current: Options }, reload: () => void): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const leave = onEvents((event) => {
      const { concerns } = latest.current;
      if (concerns === undefined || (event !== undefined && !concerns(event))) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        reload();
      }, GATHER_MS);
    });
    return () => {
      leave();
      clearTimeout(timer);
    };
  }, [reload]);
}

/** The present time, every second: for ages and costs that grow. */
export function useNow(everyMs = 1000): ReadonlySignal<number> {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return useComputed(() => now.value);
}
