import { useSignal } from '@preact/signals';
import { explain } from './explain.ts';

export interface Action {
  isBusy: boolean;
  /** Why the last run failed. */
  error: string | undefined;
  /** Runs the action, unless it is under way. Resolves with false if it failed. */
  run: (work: () => Promise<unknown>) => Promise<boolean>;
}

/** The state of an action of a button or a form: one at a time, with the error of the last. */
export function useAction(): Action {
  const isBusy = useSignal(false);
  const error = useSignal<string | undefined>(undefined);
  const run = async (work: () => Promise<unknown>): Promise<boolean> => {
    if (isBusy.value) return false;
    isBusy.value = true;
    error.value = undefined;
    try {
      await work();
      return true;
    } catch (fault) {
      error.value = explain(fault);
      return false;
    } finally {
      isBusy.value = false;
    }
  };
  return { isBusy: isBusy.value, error: error.value, run };
}
