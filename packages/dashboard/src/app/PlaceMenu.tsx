import { account, open, place, type Place } from '../service/session.ts';
import { Icon } from '../ui/Icon.tsx';
import { Menu } from '../ui/Menu.tsx';
import { showFailure } from '../ui/toasts.tsx';

/** Chooses the organization and the team that the page shows. */
export function PlaceMenu() {
  const here = place.value;
  const organizations = account.value?.organizations ?? [];
  if (here === undefined) return null;
  const choices = organizations.flatMap((organization): Place[] =>
    organization.teams.length === 0
      ? [{ organization, team: undefined }]
      : organization.teams.map((team) => ({ organization, team })),
  );
  const isHere = (organizationId: string, teamId: string | undefined): boolean =>
    organizationId === here.organization.id && teamId === here.team?.id;
  return (
    <Menu
      label="Organization and team"
      hasText
      button={
        <span class="place">
          <b>{here.organization.name}</b>
          {here.team !== undefined && (
            <>
              <span class="soft">/</span> {here.team.name}
            </>
          )}
          <Icon name="chevron" size={14} />
        </span>
      }
      items={choices.map(({ organization, team }) => ({
        label: `${organization.name} / ${team?.name ?? 'no team'}`,
        icon: isHere(organization.id, team?.id) ? 'check' : 'building',
        onSelect: () => void open(organization, team?.id).catch(showFailure),
      }))}
    />
  );
}
