import { formatBytes, formatNumber } from '../../../ui/format.ts';
import { Button, IconButton } from '../../../ui/Button.tsx';
import { GuestText } from '../../../ui/GuestText.tsx';
import { batches, dismissBatch, type Batch } from './uploads.ts';

const MAX_FAILURES_SHOWN = 20;

/** Uploads of a sandbox that are under way, or that failed. */
export function UploadProgress({ sandboxId }: { sandboxId: string }) {
  return (
    <>
      {batches.value
        .filter((batch) => batch.sandboxId === sandboxId)
        .map((batch) => (
          <BatchCard key={batch.id} batch={batch} />
        ))}
    </>
  );
}

function BatchCard({ batch }: { batch: Batch }) {
  const { state, doneBytes, doneFiles, currentName, failures } = batch.progress.value;
  const { totalBytes, totalFiles } = batch;
  const isRunning = state === 'running';
  return (
    <section class="card upload" aria-label="Upload">
      <div class="row">
        <b>{titleOf(batch)}</b>
        <span class="soft">
          {formatNumber(doneFiles)} of {formatNumber(totalFiles)} · {formatBytes(doneBytes)} of{' '}
          {formatBytes(totalBytes)}
        </span>
        <span class="gap" />
        {isRunning ? (
          <Button onClick={batch.cancel}>Cancel</Button>
        ) : (
          <IconButton icon="close" label="Dismiss" onClick={() => dismissBatch(batch.id)} />
        )}
      </div>
      {isRunning && (
        <>
          <progress max={Math.max(1, totalBytes)} value={doneBytes} aria-label="Bytes that were sent" />
          <p class="soft upload-name">
            <GuestText text={currentName} />
          </p>
        </>
      )}
      {failures.length > 0 && (
        <ul class="upload-failures">
          {failures.slice(0, MAX_FAILURES_SHOWN).map(({ path, why }) => (
            <li key={path}>
              <GuestText text={path} />: <span class="fault">{why}</span>
            </li>
          ))}
          {failures.length > MAX_FAILURES_SHOWN && (
            <li>{formatNumber(failures.length - MAX_FAILURES_SHOWN)} more failed.</li>
          )}
        </ul>
      )}
    </section>
  );
}

function titleOf({ progress }: Batch): string {
  const { state, failures } = progress.value;
  if (state === 'running') return 'Uploading';
  if (state === 'cancelled') return 'Upload cancelled';
  return `${formatNumber(failures.length)} ${failures.length === 1 ? 'file was' : 'files were'} not uploaded`;
}
