//! The entities of the tests.

pub(crate) mod customer {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "orm_customer")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub shop: String,
        #[sea_orm(unique)]
        pub name: String,
        pub balance: i64,
        pub active: bool,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// One column of each type that rows convert.
pub(crate) mod sample {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "orm_sample")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub small: i16,
        pub big: Option<i64>,
        pub single: f32,
        pub double: Option<f64>,
        #[sea_orm(column_type = "Decimal(Some((12, 2)))")]
        pub price: Option<Decimal>,
        pub note: Option<String>,
        pub bytes: Option<Vec<u8>>,
        pub day: Option<Date>,
        pub hour: Option<Time>,
        pub moment: Option<DateTime>,
        pub zoned: Option<DateTimeWithTimeZone>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// Types that only PostgreSQL has: MariaDB stores both as another type.
pub(crate) mod document {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "orm_document")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub token: Uuid,
        pub content: Option<Json>,
        #[sea_orm(column_type = "JsonBinary")]
        pub settings: Json,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}
