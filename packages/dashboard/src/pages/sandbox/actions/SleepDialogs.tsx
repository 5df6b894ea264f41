import { useSignal } from '@preact/signals';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Checkbox } from '../../../ui/Field.tsx';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';

export function HibernateDialog({ sandbox, record, perform, onClose }: ActionProps) {
  return (
    <ActionDialog
      title="Hibernate the sandbox"
      verb="Hibernate"
      done="The sandbox is hibernated."
      act={async () => perform(async () => sandbox.hibernate())}
      onClose={onClose}
      code={codeOf({
        id: record.id,
        method: 'POST',
        path: '/hibernate',
        typescript: 'await sandbox.hibernate();',
        python: 'sandbox.hibernate()',
      })}
    >
      <p class="soft">
        Memory and processes are saved, and the sandbox costs nothing until it is resumed. Open connections
        and terminals end.
      </p>
    </ActionDialog>
  );
}

export function ResumeDialog({ sandbox, record, perform, onClose }: ActionProps) {
  const isFresh = useSignal(false);
  return (
    <ActionDialog
      title="Resume the sandbox"
      verb="Resume"
      done="The sandbox runs."
      act={async () => perform(async () => sandbox.resume(isFresh.value ? { disk: 'fresh' } : {}))}
      onClose={onClose}
      code={codeOf({
        id: record.id,
        method: 'POST',
        path: `/resume${isFresh.value ? '?disk=fresh' : ''}`,
        typescript: `await sandbox.resume(${isFresh.value ? "{ disk: 'fresh' }" : ''});`,
        python: `sandbox.resume(${isFresh.value ? 'disk="fresh"' : ''})`,
      })}
    >
      <p class="soft">The processes continue where they were. From now on the sandbox costs as it did.</p>
      {record.disk !== null && (
        <Checkbox
          label="Take the disk as it is now"
          hint={`Needed if another sandbox has written to ${record.disk.name}. Files that programs have open on it are lost.`}
          isChecked={isFresh.value}
          onChange={(isChecked) => (isFresh.value = isChecked)}
        />
      )}
    </ActionDialog>
  );
}
