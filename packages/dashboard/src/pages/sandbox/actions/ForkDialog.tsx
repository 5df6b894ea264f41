import { useSignal } from '@preact/signals';
import { ForkError, type Sandbox } from '../../../../../sdk/src/index.ts';
import { explain } from '../../../ui/explain.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Button } from '../../../ui/Button.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { TextField } from '../../../ui/Field.tsx';
import { formatNumber } from '../../../ui/format.ts';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';

/** Limit of the service for one fork. */
const MAX_CHILDREN = 100;

interface Outcome {
  children: readonly Sandbox[];
  /** Why the others could not be made. */
  errors: readonly string[];
}

export function ForkDialog({ sandbox, record, perform, onClose }: ActionProps) {
  const count = useSignal('1');
  const outcome = useSignal<Outcome | undefined>(undefined);
  const wanted = Number(count.value);
  const isCount = Number.isInteger(wanted) && wanted >= 1 && wanted <= MAX_CHILDREN;
  const fork = async (): Promise<void> => {
    outcome.value = await perform(async () => forkAll(sandbox, wanted));
  };
  if (outcome.value !== undefined) return <Children {...outcome.value} onClose={onClose} />;
  return (
    <ActionDialog
      title="Fork the sandbox"
      verb="Fork"
      act={fork}
      isDisabled={!isCount}
      onClose={() => {
        if (outcome.peek() === undefined) onClose();
      }}
      code={codeOf({
        id: record.id,
        method: 'POST',
        path: '/fork',
        body: { count: isCount ? wanted : 1 },
        typescript: `const children = await sandbox.fork(${isCount ? wanted : 1});`,
        python: `children = sandbox.fork(${isCount ? wanted : 1})`,
      })}
    >
      <p class="soft">
        Each child is a copy with the memory, the processes and the files as they are now. This sandbox
        continues to run.
        {record.disk !== null && ` Each child gets its own fork of the disk ${record.disk.name}.`}
      </p>
      <TextField
        label="Number of children"
        value={count.value}
        onValue={(value) => (count.value = value)}
        error={isCount ? undefined : `Write a whole number from 1 to ${MAX_CHILDREN}.`}
        attributes={{ type: 'number', min: 1, max: MAX_CHILDREN, step: 1, autofocus: true }}
      />
    </ActionDialog>
  );
}

async function forkAll(sandbox: Sandbox, count: number): Promise<Outcome> {
  try {
    return { children: await sandbox.fork(count), errors: [] };
  } catch (error) {
    if (!(error instanceof ForkError)) throw error;
    return { children: error.children, errors: [...new Set(error.errors.map(explain))] };
  }
}

function Children({ children, errors, onClose }: Outcome & { onClose: () => void }) {
  return (
    <Dialog
      title={children.length === 1 ? 'One child runs' : `${formatNumber(children.length)} children run`}
      onClose={onClose}
    >
      {errors.map((error) => (
        <p key={error} class="fault" role="alert">
          The others could not be made: {error}
        </p>
      ))}
      <ul class="child-links">
        {children.map(({ id, record }) => (
          <li key={id}>
            <a class="mono" href={`/sandboxes/${id}`}>
              {record.name ?? id}
            </a>
          </li>
        ))}
      </ul>
      <div class="dialog-foot">
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </Dialog>
  );
}
