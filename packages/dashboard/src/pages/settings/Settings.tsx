import type { SessionRecord } from '../../../../contract/src/accounts/people.ts';
import { chooseTheme, theme, type Theme } from '../../service/theme.ts';
import { callAccount } from '../../service/account-calls.ts';
import { useResource } from '../../service/resource.ts';
import { account, signOut } from '../../service/session.ts';
import { Button } from '../../ui/Button.tsx';
import { CopyButton } from '../../ui/CopyButton.tsx';
import { formatDay } from '../../ui/format.ts';
import { GuestText } from '../../ui/GuestText.tsx';
import { Card, Facts, Page } from '../../ui/Page.tsx';
import { showFailure } from '../../ui/toasts.tsx';
import '../../styles/organization.css';
import { PasswordCard } from './PasswordCard.tsx';
import { Sessions } from './Sessions.tsx';
import { Segments, toOptions } from '../../ui/Segments.tsx';

const THEMES: readonly Theme[] = ['system', 'light', 'dark'];

/** `/settings`: the own account. */
export function Settings() {
  const user = account.value?.user;
  const sessions = useResource((): Promise<SessionRecord[]> => callAccount('GET', '/sessions'), []);
  if (user === undefined) return null;
  return (
    <Page
      title="Your account"
      actions={
        <Button icon="logout" onClick={() => void signOut().catch(showFailure)}>
          Sign out
        </Button>
      }
    >
      <Card>
        <Facts
          facts={[
            ['Name', <GuestText text={user.name} />],
            ['E-mail address', <GuestText text={user.email} />],
            ['Since', formatDay(user.created_at)],
            [
              'Id',
              <span class="with-copy">
                <span class="mono">{user.id}</span>
                <CopyButton text={user.id} label="Copy your id" />
              </span>,
            ],
          ]}
        />
      </Card>
      <Sessions sessions={sessions} />
      <div class="columns start">
        <PasswordCard email={user.email} onChanged={sessions.reload} />
        <Card title="Appearance">
          <p class="soft">It is kept in this browser.</p>
          <div>
            <Segments label="Theme" options={toOptions(THEMES)} value={theme.value} onValue={chooseTheme} />
          </div>
        </Card>
      </div>
    </Page>
  );
}
