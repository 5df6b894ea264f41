import { useSignal } from '@preact/signals';
import type { DestroyResult } from '../../../../../sdk/src/index.ts';
import { ActionDialog } from '../../../ui/ActionDialog.tsx';
import { Button } from '../../../ui/Button.tsx';
import { Dialog } from '../../../ui/Dialog.tsx';
import { formatBytes, formatCents, formatDuration } from '../../../ui/format.ts';
import { Facts } from '../../../ui/Page.tsx';
import { codeOf } from '../sandbox-code.ts';
import type { ActionProps } from './action-props.ts';

export function DestroyDialog({ sandbox, record, perform, onClose }: ActionProps) {
  const result = useSignal<DestroyResult | undefined>(undefined);
  if (result.value !== undefined) return <Result result={result.value} onClose={onClose} />;
  return (
    <ActionDialog
      title="Destroy the sandbox"
      verb="Destroy"
      kind="danger"
      act={async () => {
        result.value = await perform(async () => sandbox.destroy());
      }}
      onClose={() => {
        if (result.peek() === undefined) onClose();
      }}
      code={codeOf({
        id: record.id,
        method: 'DELETE',
        typescript: 'const { costCents } = await sandbox.destroy();',
        python: 'result = sandbox.destroy()\nprint(result.cost_cents)',
      })}
    >
      <p>
        <b>{record.name ?? record.id}</b> ends now, with everything in it. This cannot be undone.
        {record.disk !== null && ` The disk ${record.disk.name} stays.`} Its snapshots stay.
      </p>
    </ActionDialog>
  );
}

function Result({ result, onClose }: { result: DestroyResult; onClose: () => void }) {
  const { costCents, uptimeMs, cpuMs, memPeakBytes } = result;
  return (
    <Dialog title="The sandbox was destroyed" onClose={onClose}>
      <Facts
        facts={[
          ['Cost', <b key="cost">{formatCents(costCents)}</b>],
          ['It existed for', formatDuration(uptimeMs)],
          ['Processor time', formatDuration(cpuMs)],
          ['Most memory', formatBytes(memPeakBytes)],
        ]}
      />
      <div class="dialog-foot">
        <Button kind="primary" onClick={onClose}>
          Close
        </Button>
      </div>
    </Dialog>
  );
}
