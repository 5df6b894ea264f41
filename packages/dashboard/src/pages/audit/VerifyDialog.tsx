import { useSignal } from '@preact/signals';
import type { AuditHead, AuditVerdict } from '../../../../sdk/src/index.ts';
import { Button } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { Dialog } from '../../ui/Dialog.tsx';
import { TextField } from '../../ui/Field.tsx';
import { Icon } from '../../ui/Icon.tsx';
import { showHidden } from '../../ui/visible-text.ts';
import { useAction } from '../../ui/use-action.ts';
import { readHead, writeHead } from './log-text.ts';
import { countEntries } from './organization-sentences.ts';
import { canVerify, type Verification } from './verify-log.ts';

interface VerifyDialogProps {
  /** Path of the page of the log, to lead to the entry of a fault. */
  path: string;
  /** Asks for the secret: the reader may not fetch it. */
  needsSecret: boolean;
  verify: (input: { head: AuditHead | undefined; secret: string }) => Promise<Verification>;
  onClose: () => void;
}

/** Verifies a log in this browser, and shows the verdict. */
export function VerifyDialog({ path, needsSecret, verify, onClose }: VerifyDialogProps) {
  const head = useSignal('');
  const secret = useSignal('');
  const result = useSignal<Verification | undefined>(undefined);
  const action = useAction();
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    result.value = undefined;
    await action.run(async () => {
      const input = { head: readHead(head.value), secret: secret.value.trim() };
      result.value = await verify(input);
    });
  };
  return (
    <Dialog title="Verify the log" size="large" onClose={onClose}>
      <p class="soft">
        Each entry carries a hash of all entries before it, made with a secret. Your browser reads the whole
        log, computes every hash, and compares.{' '}
        {needsSecret
          ? 'The secret stays in this page.'
          : 'It fetches the secret, which the audit log of the organization records; the secret stays in this page.'}
      </p>
      {canVerify() ? (
        <form onSubmit={(event) => void submit(event)}>
          {needsSecret && (
            <TextField
              label="Secret of the log"
              hint="It begins with cts_. Owners of the organization see it under API keys, and can hand it over."
              value={secret.value}
              onValue={(value) => (secret.value = value)}
              attributes={{ type: 'password', required: true, autocomplete: 'off' }}
            />
          )}
          <TextField
            label="Earlier head"
            isOptional
            hint="Number and hash of an entry that you kept elsewhere. It proves that nothing up to it was cut off."
            value={head.value}
            onValue={(value) => (head.value = value)}
            attributes={{ placeholder: '57:sha256:…' }}
          />
          {action.error !== undefined && (
            <p class="fault" role="alert">
              {action.error}
            </p>
          )}
          {result.value !== undefined && <VerdictView result={result.value} path={path} onClose={onClose} />}
          <div class="dialog-foot">
            <Button onClick={onClose}>Close</Button>
            <Button kind="primary" type="submit" icon="check" isBusy={action.isBusy}>
              Verify
            </Button>
          </div>
        </form>
      ) : (
        <Insecure />
      )}
    </Dialog>
  );
}

/** Browsers compute hashes only for pages that cannot have been changed on the way. */
function Insecure() {
  return (
    <div class="verdict warn" role="alert">
      <Icon name="alert" />
      <div>
        <b>This browser cannot verify here</b>
        <p>
          The page came over plain HTTP from another machine, and browsers have cryptography only for pages
          over HTTPS or of the same machine. Open the dashboard over HTTPS, or export the log and run{' '}
          <code>coppice audit verify</code>.
        </p>
      </div>
    </div>
  );
}

function VerdictView({ result, path, onClose }: { result: Verification; path: string; onClose: () => void }) {
  const { verdict, head, secretIds, isHeadGiven, faultSeq } = result;
  return (
    <div class={`verdict ${verdict.valid ? 'good' : 'bad'}`} role="status">
      <Icon name={verdict.valid ? 'check' : 'alert'} />
      <div>
        <b>{titleOf(verdict)}</b>
        {verdict.valid ? (
          <p>
            {countEntries(verdict.entries)} verified. {explainEnd(verdict.complete, isHeadGiven)}
          </p>
        ) : (
          <p>
            {countEntries(verdict.entries)} verified. First fault ({verdict.problem.replaceAll('_', ' ')}):{' '}
            {showHidden(verdict.message)}.{' '}
            {faultSeq !== undefined && (
              <a href={`${path}?entry=${faultSeq}`} onClick={onClose}>
                Show entry {faultSeq}
              </a>
            )}
          </p>
        )}
        {head !== undefined && (
          <div>
            <span class="soft">Head</span>
            <div class="with-copy">
              <code>{writeHead(head)}</code>
              <CopyButton text={writeHead(head)} label="Copy the head" />
            </div>
          </div>
        )}
        <div>
          <span class="soft">{secretIds.length > 1 ? 'Secrets' : 'Secret'}</span>
          <div>
            <code>{secretIds.length === 0 ? 'the one that you gave' : secretIds.join(', ')}</code>
          </div>
        </div>
      </div>
    </div>
  );
}

function titleOf(verdict: AuditVerdict): string {
  if (verdict.valid) return 'The log is unchanged';
  if (verdict.problem === 'other_head') return 'The head does not belong to this log';
  if (verdict.problem === 'altered' && verdict.seq === 1)
    return 'The log was changed, or the secret is not that of this log';
  return verdict.problem === 'unknown_secret' ? 'The log needs another secret' : 'The log was changed';
}

function explainEnd(isComplete: boolean, isHeadGiven: boolean): string {
  if (isHeadGiven) return 'Nothing up to the earlier head is missing.';
  return isComplete
    ? 'It reaches the head that the service names now. Keep the head elsewhere: it reveals later whether the end was cut off.'
    : 'Entries at the end may be missing.';
}
