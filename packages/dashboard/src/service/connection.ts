/** Whether the service can be reached. The answers to calls show it; while there are none, the page asks once a second. */
import { signal } from '@preact/signals';

const PROBE_MS = 1000;
const PROBE_TIMEOUT_MS = 5000;

export const isReachable = signal(true);

/** Sends a request, and notes whether it was answered. */
export async function fetchNoted(url: string, init: RequestInit): Promise<Response> {
  try {
    const response = await fetch(url, init);
    isReachable.value = true;
    return response;
  } catch (error) {
    if (init.signal?.aborted !== true) noteOutage();
    throw error;
  }
}

function noteOutage(): void {
  if (!isReachable.value) return;
  isReachable.value = false;
  void probeUntilReachable();
}

async function probeUntilReachable(): Promise<void> {
  while (!isReachable.value) {
    await new Promise((resolve) => setTimeout(resolve, PROBE_MS));
    try {
      const { ok } = await fetch('/healthz', { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
      if (ok) isReachable.value = true;
    } catch (error) {
      console.debug(error);
    }
  }
}
