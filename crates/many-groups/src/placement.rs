//! Which machines a group's members are on, which of them leads, and who leads when a machine is lost.

/// A group's members by their machines. The first one leads as long as nothing is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// The machine of each; each another one, if there are as many.
    pub machines: Vec<usize>,
    /// Which of them leads; none between two leaders.
    pub leader: Option<usize>,
}

/// A leader has so many times the work of a follower, about.
const LEADER: usize = 2;

/// Spreads so many groups with so many members each over the machines: leaders evenly, followers where the least is to do, and the
/// followers of one machine's groups over all others, so that what a lost machine has led does not fall to one neighbour.
pub fn spread(groups: usize, members: usize, machines: usize) -> Vec<Members> {
    let mut work = vec![0; machines];
    for group in 0..groups {
        work[group % machines] += LEADER;
    }
    // How often a machine follows another one.
    let mut follows = vec![vec![0; machines]; machines];
    let of = |group: usize| {
        let first = group % machines;
        let mut at = vec![first];
        while at.len() < members {
            let others = (1..machines).map(|by| (first + by) % machines);
            let free = others.filter(|machine| !at.contains(machine));
            let next = free.min_by_key(|machine| (work[*machine], follows[first][*machine]));
            // With fewer machines than members some have several: as when all nodes of a cluster are on one machine.
            let next = next.unwrap_or((first + at.len()) % machines);
            work[next] += 1;
            follows[first][next] += 1;
            at.push(next);
        }
        Members {
            machines: at,
            leader: Some(0),
        }
    };
    (0..groups).map(of).collect()
}

/// The member that leads a group next: of those that live the one whose machine leads the fewest.
pub fn next_leader(members: &Members, alive: &[bool], leads: &[usize]) -> Option<usize> {
    (0..members.machines.len())
        .filter(|member| alive[members.machines[*member]])
        .min_by_key(|member| leads[members.machines[*member]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaders_are_even_and_members_are_apart() {
        for (groups, machines) in [(3, 3), (48, 6), (96, 12), (7, 5)] {
            let all = spread(groups, 3, machines);
            let mut leads = vec![0; machines];
            for members in &all {
                leads[members.machines[0]] += 1;
                let mut apart = members.machines.clone();
                apart.sort_unstable();
                apart.dedup();
                assert_eq!(apart.len(), 3, "{members:?}");
            }
            let (least, most) = (leads.iter().min(), leads.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{leads:?}");
        }
    }

    #[test]
    fn what_a_lost_machine_led_is_spread_over_the_others() {
        let (groups, machines) = (60, 6);
        let mut leads = vec![groups / machines; machines];
        let mut alive = vec![true; machines];
        alive[2] = false;
        leads[2] = 0;
        for members in spread(groups, 3, machines)
            .iter()
            .filter(|members| members.machines[0] == 2)
        {
            let next = next_leader(members, &alive, &leads).unwrap();
            leads[members.machines[next]] += 1;
        }
        assert_eq!(leads.iter().sum::<usize>(), groups);
        let mut others = leads.iter().enumerate().filter(|(machine, _)| *machine != 2);
        assert!(others.all(|(_, leads)| (11..=13).contains(leads)), "{leads:?}");
    }

    #[test]
    fn machines_that_lead_nothing_follow() {
        let all = spread(2, 3, 6);
        let mut members: Vec<usize> = all.iter().flat_map(|of| of.machines.clone()).collect();
        members.sort_unstable();
        assert_eq!(members, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn one_machine_may_have_all() {
        assert_eq!(spread(1, 3, 1)[0].machines, [0, 0, 0]);
    }
}
