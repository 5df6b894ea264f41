import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { EventInfo } from '../../../../../sdk/src/index.ts';
import { onEvents } from '../../../service/live-events.ts';
import { client } from '../../../service/session.ts';
import { mergeEvents } from './event-log.ts';

export interface EventLog {
  /** Newest first; undefined until the first answer. */
  events: readonly EventInfo[] | undefined;
  isComplete: boolean;
  error: unknown;
  reload: () => void;
}

/** Shown as they are read: a sandbox with a busy network may have tens of thousands. */
const BATCH = 500;

/** Reads the kept events of a sandbox, and adds new ones as they happen. */
export function useEventLog(runId: string): EventLog {
  const current = client.value;
  const events = useSignal<readonly EventInfo[] | undefined>(undefined);
  const isComplete = useSignal(false);
  const error = useSignal<unknown>(undefined);
  const restart = useRef(() => {});
  useEffect(() => {
    let reading = new AbortController();
    const add = (added: readonly EventInfo[]): void => {
      events.value = mergeEvents(events.value ?? [], added);
    };
    const read = (): void => {
      reading.abort();
      reading = new AbortController();
      const { signal } = reading;
      isComplete.value = false;
      error.value = undefined;
      void readAll(signal);
    };
    const readAll = async (signal: AbortSignal): Promise<void> => {
      if (current === undefined) return;
      try {
        let batch: EventInfo[] = [];
        // The service lists the oldest first, so the newest arrive with the last page.
        for await (const event of current.listEvents({ runId, signal })) {
          if (batch.push(event) < BATCH) continue;
          add(batch);
          batch = [];
        }
        add(batch);
        isComplete.value = true;
      } catch (fault) {
        if (!signal.aborted) error.value = fault;
      }
    };
    events.value = undefined;
    restart.current = read;
    read();
    const leave = onEvents((event) => {
      if (event === undefined) read();
      else if (event.runId === runId) add([event]);
    });
    return () => {
      leave();
      reading.abort();
    };
  }, [current, runId]);
  return {
    events: events.value,
    isComplete: isComplete.value,
    error: error.value,
    reload: () => restart.current(),
  };
}
